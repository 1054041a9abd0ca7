"""The command group: imports commands late, turns errors into one sentence."""
from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import click

from kafkastore.cli import interrupts
from kafkastore.cli.output.failures import (
    UNREADABLE,
    Interrupted,
    discard_output,
    format_error,
    print_problem,
)
from kafkastore.errors import KafkaStoreError
from kafkastore.shown_text import similar_names

#: The exit code that a shell reports for a program that SIGPIPE ended, such as `cat` in ``cat file
#: | head``.
PIPE_CLOSED = 141
_FULL = (errno.ENOSPC, errno.EDQUOT)


#: Options by names that other programs, or other commands, have for them.
_OTHER_NAMES = {
    "--rules": ("--kafka-version",),
    "--kafka-version": ("--rules",),
    "--broker-version": ("--kafka-version", "--rules"),
    "--since": ("--from",),
    "--start": ("--from", "--from-offset"),
    "--to": ("--until", "--copy-to"),
    "--end": ("--until", "--until-offset"),
    "--time": ("--at", "--now"),
    "--timezone": ("--tz",),
    "--offset": ("--from-offset",),
    "--max-messages": ("--limit",),
    "-n": ("--limit", "--tail"),
    "--output": ("--out", "--copy-to"),
    "--out": ("--output", "--copy-to"),
    "-o": ("--out", "--copy-to"),
    "--group-id": ("--group",),
    "-t": ("--topic",),
    "-p": ("--partition",),
    "-v": ("--verbose",),
    "-y": ("--yes",),
    "--force": ("--yes",),
    "--jobs": ("--threads",),
    "-j": ("--threads",),
}


class _PipeClosed(Exception):
    """The reader of stdout has closed the pipe."""


class CommandLine(click.Group):
    """A group whose commands are modules with an attribute ``command``.

    `commands_by_name` maps each command to its one-line help, in the order of the help text;
    `package_of` returns the package of its module.
    """

    def __init__(
        self,
        *,
        commands_by_name: Mapping[str, str],
        package_of: Callable[[str], str],
        **attributes: Any,
    ) -> None:
        super().__init__(**attributes)
        self._purposes, self._package_of = commands_by_name, package_of

    def list_commands(self, context: click.Context) -> list[str]:
        """List the commands in their defined order."""
        return list(self._purposes)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import a command."""
        if name not in self._purposes:
            return None
        command: click.Command = import_module(f"{self._package_of(name)}.{name}").command
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; handle ``help COMMAND`` and misspelled names."""
        if args[0] == "help":
            if len(args) == 1:
                click.echo(context.get_help())
                context.exit()
            args = [args[1], "--help"]
        if args[0] not in self._purposes and not context.resilient_parsing:
            alike = similar_names(args[0], self._purposes)
            hint = f", did you mean {alike[0]}?" if alike else ""
            if not alike and os.path.exists(args[0]):
                hint = f"; name one before the path, such as {context.command_path} ls {args[0]}"
            context.fail(f"No such command '{args[0]}'{hint}")
        return super().resolve_command(context, args)

    def shell_complete(
        self, context: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """List the commands that begin with `incomplete`, without importing them."""
        return [
            click.shell_completion.CompletionItem(name, help=purpose)
            for name, purpose in self._purposes.items()
            if name.startswith(incomplete)
        ] + click.Command.shell_complete(self, context, incomplete)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._purposes.items()))

    def invoke(self, context: click.Context) -> Any:
        """Run the command; handle closed pipes and interrupts before click does."""
        from kafkastore.log.log_dir import UnknownLogStartWarning  # takes time that --help saves

        try:
            with interrupts.raised(), warnings.catch_warnings():
                warnings.simplefilter("ignore", UnknownLogStartWarning)  # commands report it
                result = super().invoke(context)
                sys.stdout.flush()
        except Interrupted:
            raise
        except BrokenPipeError as error:
            raise _PipeClosed from error
        except (Exception, KeyboardInterrupt) as error:
            # Libraries may turn a `KeyboardInterrupt` into another error.
            if isinstance(error, KeyboardInterrupt) or interrupts.have_come():
                raise Interrupted("interrupted") from error
            raise
        return result

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> int:
        """Run a command line and return its exit code; in standalone mode, exit with it.

        Every failure that is not a bug is reported as one sentence on stderr.
        """
        _make_output_robust()
        code = self._run(args, prog_name, complete_var, extra)
        if standalone_mode:
            sys.exit(code)
        return code

    def _run(
        self,
        args: Sequence[str] | None,
        prog_name: str | None,
        complete_var: str | None,
        extra: dict[str, Any],
    ) -> int:
        try:
            result = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.ctx.get_help() if error.ctx else error.message, err=True)
            return UNREADABLE
        except click.UsageError as error:
            _print_wrong_use(error)
            return UNREADABLE
        except _PipeClosed:
            discard_output()  # otherwise Python would fail again when it flushes at exit
            return PIPE_CLOSED
        except (Interrupted, click.Abort) as error:
            discard_output()  # a pipe's reader may be gone or slow
            if sys.stderr.isatty():
                click.echo(err=True)  # the terminal has written ^C on this line
            print_problem(format_error(error) if isinstance(error, Interrupted) else "interrupted")
            return interrupts.INTERRUPTED
        except (KafkaStoreError, OSError, click.ClickException) as error:
            # Errors of every other file that is written have its name.
            if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
                error.filename = "standard output"
            print_problem(format_error(error))
            return UNREADABLE
        return result if isinstance(result, int) else 0


def _make_output_robust() -> None:
    """Escape characters that the terminal's encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _print_wrong_use(error: click.UsageError) -> None:
    """Print what is wrong with the arguments, and where to find the correct ones."""
    path = error.ctx.command_path if error.ctx else "kafkastore"
    text = error.format_message().rstrip(".")
    if isinstance(error, click.NoSuchOption) and (meant := _meant_option(error)):
        text = f"No such option '{error.option_name}'; did you mean {meant}?"
    print_problem(f"{text}{' ' if text.endswith('?') else '; '}see {path} --help")


def _meant_option(error: click.NoSuchOption) -> str | None:
    """Return what a command calls an option of other programs or commands."""
    if error.ctx is None:
        return None
    names = {name for each in error.ctx.command.params for name in each.opts}
    meant = _OTHER_NAMES.get(error.option_name, ())
    return next((name for name in meant if name in names), None)

