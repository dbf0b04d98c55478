"""Completion in bash, zsh and fish: the command that prints the script, and the answer to a press of Tab."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Final, Literal, NoReturn

import typer

from mnemolog.cli.app import EXIT_FAILED, Command, app
from mnemolog.domain.display import one_line, visible

PROGRAM: Final = "mnemolog"

_ASK: Final = "env _MNEMOLOG_COMPLETE=1 _TYPER_COMPLETE_ARGS"
_BASH: Final = f"""
_mnemolog_completion() {{
    local line=${{COMP_LINE:0:COMP_POINT}} prefix= value
    local word=${{line##* }}
    # Bash takes the part of a word after a colon for a word of its own.
    [[ $word == *:* && $COMP_WORDBREAKS == *:* ]] && prefix=${{word%:*}}:
    COMPREPLY=()
    while IFS= read -r value; do
        printf -v value %q "$value"
        COMPREPLY+=("${{value#"$prefix"}}")
    done < <({_ASK}="$line" "$1" 2>/dev/null | cut -f1)
}}
complete -o default -F _mnemolog_completion mnemolog
"""
_ZSH: Final = f"""
#compdef mnemolog
_mnemolog_completion() {{
    local -a found
    found=(${{(f)"$({_ASK}="${{words[1,$CURRENT]}}" mnemolog 2>/dev/null | cut -f1)"}})
    if (( ${{#found}} )); then compadd -a found; else _files; fi
}}
compdef _mnemolog_completion mnemolog
"""
_FISH: Final = f"""
function __mnemolog_completion
    {_ASK}=(commandline -cp) mnemolog 2>/dev/null
end
complete --command mnemolog --no-files --arguments "(__mnemolog_completion)" \\
    --condition "__mnemolog_completion >/dev/null"
"""
SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


@app.command("completion", cls=Command)
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="bash|zsh|fish", help="Your shell.")],
) -> None:
    """Print the completion script of a shell. It completes commands, options, sessions, scopes and models.

    Load it in the shell's start-up file: `eval "$(mnemolog completion bash)"` in ~/.bashrc, the same with zsh in
    ~/.zshrc (after compinit), or `mnemolog completion fish | source` in ~/.config/fish/config.fish.

    Example: mnemolog completion bash > ~/.local/share/bash-completion/completions/mnemolog
    """
    print(SCRIPTS[shell].strip())


def complete(application: Any) -> NoReturn:
    """Print what can follow the line in `_TYPER_COMPLETE_ARGS`, with help after a tab. Exit 1 if there is nothing."""
    from typer._completion_classes import FishComplete

    shell = FishComplete(application, {}, PROGRAM, "")
    try:
        found = shell.get_completions(*shell.get_completion_args())
    except Exception:  # A line that makes no sense (yet) completes nothing.
        found = []
    for item in found:
        print(visible(item.value), one_line(item.help or ""), sep="\t")
    sys.exit(0 if found else EXIT_FAILED)
