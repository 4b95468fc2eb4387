"""The processes of this machine: read with psutil, their stacks with py-spy."""
