"""The exceptions a user of the workbench can meet."""


class WorkbenchError(Exception):
    """Base class: catch this to catch everything the workbench raises on purpose."""


class LoadError(WorkbenchError, ValueError):
    """A file is not what its loader expects; the message names file, place and remedy."""


class TableError(WorkbenchError, ValueError):
    """A frame does not fit its table; the message lists every misfit at once."""


class DatasetError(WorkbenchError, LookupError):
    """A data set is unknown, absent or does not match its checksum."""


class PublishError(WorkbenchError):
    """A notebook cannot be published; the message names notebook, cell and reason."""


class InjectionError(WorkbenchError, ValueError):
    """A fault cannot be injected as asked; the message names the field and the remedy."""


class PerformanceModelError(WorkbenchError, ValueError):
    """A prediction cannot be made from what was given, or would not be worth its name."""


class MissingExtraError(WorkbenchError, ImportError):
    """An optional package is needed and absent; the message says how to install it."""


class RecordError(WorkbenchError):
    """A recording cannot be made as asked; the message says what to change."""
