"""Run a command line that is interrupted, as by Ctrl-C, when a function is called for the nth time.

`python -m tests.children.command_line FUNCTION N ARGUMENT...`
"""

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

FUNCTION, N, *ARGUMENTS = sys.argv[1:]
calls = 0


def see(frame: FrameType, event: str, _: Any) -> None:
    """Send the signal that a terminal sends, to this whole process."""
    global calls
    if event == "call" and frame.f_code.co_name == FUNCTION:
        calls += 1
        if calls == int(N):
            os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    from mnemolog.cli import main

    sys.argv = ["mnemolog", *ARGUMENTS]
    threading.setprofile(see)
    sys.setprofile(see)
    main()
