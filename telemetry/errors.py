"""Our exceptions, each with what happens next.

NodewardenError
├── SettingsError      the operator wrote something we cannot run with: one line, exit 2
├── InputError         a file or directory cannot be read as what it claims to be: one line, exit 2
├── PublishError       Kafka refused: retried, then the process exits 3
│   ├── NotAccepted    who we are, or what we may: at the start the process exits 3
│   └── Fenced         another instance has taken over: the process exits 3, and may start again
├── SourceUnavailable  one collector's source is down: counted, tried again
│   ├── ListingIncomplete  the scheduler's listing breaks off: it changes nothing
│   └── OffsetGone     the broker no longer keeps where a reader wants to read on: it decides anew
└── SnapshotError      a stored snapshot cannot be used: the one before it is

Bad input inside a readable file is no exception: it is a `Rejected` value, counted and kept.
"""


class NodewardenError(Exception):
    """Base of all; its text is one line that names the place and the remedy."""


class SettingsError(NodewardenError):
    """The operator wrote something we cannot run with."""


class InputError(NodewardenError):
    """A file or directory cannot be read as what it claims to be."""


class PublishError(NodewardenError):
    """A record could not be handed to the log."""


class NotAccepted(PublishError):
    """The broker refuses who we are, or what we want to do; the text says which."""


class Fenced(PublishError):
    """Another instance has taken our place in the log; nothing of ours gets into it any more."""


class SourceUnavailable(NodewardenError):
    """One collector's source does not answer."""


class ListingIncomplete(SourceUnavailable):
    """The scheduler answered, and not with everything; what it left out is unknown, not gone."""


class OffsetGone(SourceUnavailable):
    """The broker no longer keeps the offset from which a reader wants to read on."""


class SnapshotError(NodewardenError):
    """A stored snapshot is torn or from an engine that we cannot read."""
