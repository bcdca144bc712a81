# Each name is imported when it is first used; this list is its only one.

# Which faults
from .designs.bits import flips_not_undone as flips_not_undone, stored_as as stored_as
from .designs.population import parameters as parameters
from .designs.faults import FaultModel as FaultModel, activation_faults as activation_faults
from .designs.faults import exhaustive_faults as exhaustive_faults, fault_list as fault_list
from .designs.faults import stratified_faults as stratified_faults, uniform_faults as uniform_faults

# Campaigns
from ._judge import Judge as Judge
from .campaigns.work import CampaignSettings as CampaignSettings
from .campaigns.campaign import campaign as campaign, outcomes_of as outcomes_of
from .campaigns.campaign import running as running
from .campaigns.exhaustive import exhaustive as exhaustive

# Detectors and protections
from .protections.detectors import Detector as Detector, Mitigation as Mitigation
from .protections.detectors import activation_clip as activation_clip, protected as protected
from .protections.detectors import range_detector as range_detector, weight_clamp as weight_clamp
from .protections.gemm_checksum import checksum_detector as checksum_detector
from .protections.gemm_checksum import (
    embedding_bag_checksum_trials as embedding_bag_checksum_trials,
)
from .protections.gemm_checksum import gemm_checksum_trials as gemm_checksum_trials

# Shipped models, and what narrow types lose
from .models.shipped import SHIPPED as SHIPPED, shipped_inputs as shipped_inputs
from .models.shipped import shipped_judge as shipped_judge, shipped_model as shipped_model
from .models.shipped import shipped_running as shipped_running
from .rounding import rounding_errors as rounding_errors
