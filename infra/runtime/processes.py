"""Other processes of this machine."""

import os


def is_running(pid: int) -> bool:
    """Whether a process with that id runs on this machine. Any number may be asked for: notes of files hold them."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError) as error:
        return isinstance(error, PermissionError)  # It runs, as another user.
    return True
