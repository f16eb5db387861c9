"""The one loop: who observes and who acts is given to it."""

from .effects import CannotObserve, EffectFailed, Effects, Observed, Observer
from .loop import ControlLoop
from .recheck import Recheck

__all__ = ["CannotObserve", "ControlLoop", "EffectFailed", "Effects", "Observed", "Observer", "Recheck"]
