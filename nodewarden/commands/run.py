"""`nodewarden run -- CMD`: a training process whose end the node agent hears of."""

from __future__ import annotations

import click

from collectors.launch import end_as, identity, run, teller
from nodewarden.session import Session


@click.command(
    "run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option("--job", default="", help="The job's id; else Slurm's.")
@click.option("--rank", type=click.IntRange(0), help="The rank; else RANK or SLURM_PROCID.")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
@click.pass_obj
def command(session: Session, job: str, rank: int | None, words: tuple[str, ...]) -> int:
    """Run CMD as it is, and tell this node's agent how it ended and its last words.

    Standard input, output and error, signals and the exit status are CMD's own, also where no agent
    runs. Only the last lines of its standard error are kept.
    """
    environ = session.environ
    return end_as(run(words, teller(environ), identity(words, environ, job, rank)))
