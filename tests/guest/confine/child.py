"""A child interpreter that is confined."""

from ipybox.guest import confine
from tests.guest.child import Child
from tests.guest.confine import in_child


class ConfinedChild(Child):
    """Runs functions of `in_child`; unless `enforced` is false, after `confine()`."""

    source = in_child
    modules = (confine,)
