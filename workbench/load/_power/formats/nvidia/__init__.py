"""Output of ``nvidia-smi``, in all its forms."""
