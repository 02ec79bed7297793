"""The command line: one group, one file a command, one place where errors become one line.

Exit status: 0 fine, 1 incidents found where --fail-on asks for it or an audit that differs, 2
usage, settings or unreadable input, 3 a service could not do its work, or an error of ours. No
traceback reaches a user unless NODEWARDEN_TRACE=1 asks for it.
"""

from __future__ import annotations

import errno
import importlib
import os
import pkgutil
import sys
import traceback
from collections.abc import Mapping, Sequence

import click
from click.exceptions import NoArgsIsHelpError

import nodewarden.commands
from nodewarden.session import Session
from nodewarden.settings_file import TRACE_VARIABLE
from nodewarden.version import version
from telemetry.errors import (
    NodewardenError,
    PublishError,
    SnapshotError,
    SourceUnavailable,
)

FINE, REFUSED, FAILED, INTERRUPTED = 0, 2, 3, 130
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_FAILURES = (PublishError, SourceUnavailable, SnapshotError)


class CommandFiles(click.Group):
    """A group whose commands are the modules of `nodewarden.commands`, imported when asked for.

    A module's `command` is registered under the module's name: `import_.py` is `import`.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, sorted."""
        return sorted(_modules())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, None where there is none."""
        module = _modules().get(cmd_name)
        if module is None:
            return None
        command = importlib.import_module(module).command
        assert isinstance(command, click.Command), module
        return command


@click.group(cls=CommandFiles, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version(), prog_name="nodewarden", message="%(prog)s %(version)s")
def cli() -> None:
    """Find the node that hurts an LLM-training job, and say what the scheduler should do."""


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run one command line and return its exit status; nothing is raised.

    A command that returns a number ends with it, else it was fine.
    """
    try:
        status = cli.main(
            list(arguments), "nodewarden", standalone_mode=False, obj=Session(environ)
        )
        sys.stdout.flush()  # a reader that left shows here, not while the interpreter ends
    except NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return REFUSED
    except click.UsageError as error:
        said = _one_line(error.format_message()).removesuffix(".")
        return _say(f"{said}. {_where_help(error)}", REFUSED)
    except click.ClickException as error:
        return _say(error.format_message(), REFUSED)
    except (click.Abort, KeyboardInterrupt):
        return _say("interrupted", INTERRUPTED)
    except NodewardenError as error:
        return _say(str(error), FAILED if isinstance(error, _FAILURES) else REFUSED)
    except (BrokenPipeError, SystemExit):
        # click ends the process itself where our reader left, and after shell completion
        return _quiet()
    except Exception as error:  # noqa: BLE001 - the top of the process
        return _unexpected(error, environ)
    return status if isinstance(status, int) else FINE


def _modules() -> dict[str, str]:
    package = nodewarden.commands
    return {
        found.name.rstrip("_").replace("_", "-"): f"{package.__name__}.{found.name}"
        for found in pkgutil.iter_modules(package.__path__)
    }


def _unexpected(error: Exception, environ: Mapping[str, str]) -> int:
    if environ.get(TRACE_VARIABLE) == "1":
        traceback.print_exception(error)
        return FAILED
    if isinstance(error, OSError) and error.filename is not None:
        return _say(f"{error.filename}: {error.strerror}; check it and its permissions", REFUSED)
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return _quiet(_say(f"cannot write: {error.strerror}; make room", REFUSED))
    said = f"unexpected {type(error).__name__}: {error}"
    return _say(f"{said}; {TRACE_VARIABLE}=1 shows where it happened", FAILED)


def _say(text: str, status: int) -> int:
    click.echo(f"nodewarden: {_one_line(text)}", err=True)
    return status


def _quiet(status: int = FINE) -> int:
    """The reader of our output left; what is still buffered must not fail at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _where_help(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else "nodewarden"
    return f"See '{path} --help'."


def _one_line(text: str) -> str:
    """`text` without line breaks and control characters: file names may hold anything."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
