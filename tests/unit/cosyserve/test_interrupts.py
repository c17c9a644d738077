"""Programs hear a Ctrl-C also where their parent ignored it, as nohup and job runners do."""

import signal
import subprocess
import sys
import threading

from cosyserve.commands.terminal.output import interrupts_enabled


def test_a_child_that_inherited_a_deaf_ear_is_interrupted() -> None:
    program = (
        "import signal, time\n"
        "from cosyserve.commands.terminal.output import interrupts_enabled\n"
        "assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN\n"
        "try:\n"
        "    with interrupts_enabled():\n"
        "        print('up', flush=True)\n"
        "        time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    print('heard', signal.getsignal(signal.SIGINT) is signal.SIG_IGN)\n"
    )
    command = ["sh", "-c", 'trap \'\' INT; exec "$0" -c "$1"', sys.executable, program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[0] == "heard True\n"
    assert process.returncode == 0


def test_other_handlers_and_other_threads_are_left_alone() -> None:
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        ours = signal.getsignal(signal.SIGINT)
        with interrupts_enabled():
            assert signal.getsignal(signal.SIGINT) is ours
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        seen: list[object] = []

        def enter() -> None:
            with interrupts_enabled():
                seen.append(signal.getsignal(signal.SIGINT))

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        assert seen == [signal.SIG_IGN]
    finally:
        signal.signal(signal.SIGINT, before)
