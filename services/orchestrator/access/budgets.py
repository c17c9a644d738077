"""The budgets of all callers that were seen lately."""

from collections import OrderedDict

from services.orchestrator.access.budget import Budget
from services.orchestrator.access.caller import Caller
from services.orchestrator.access.limit_parts import LimitParts

MOST_BUDGETS = 20_000


class Budgets:
    """parts: into how many parts the limits of a key are divided."""

    def __init__(self, parts: LimitParts) -> None:
        self._parts = parts
        self._budgets: OrderedDict[str, Budget] = OrderedDict()

    def of(self, caller: Caller) -> Budget:
        """What the caller may still use, with the limits that it has now."""
        budget = self._budgets.get(caller.id)
        if budget is None:
            budget = self._budgets[caller.id] = Budget(caller.id, parts=lambda: self._parts.count)
            self._forget_unused()
        self._budgets.move_to_end(caller.id)
        budget.limits = caller.limits
        return budget

    def _forget_unused(self) -> None:
        """A provider may name any number of tenants."""
        while len(self._budgets) > MOST_BUDGETS:
            name, oldest = next(iter(self._budgets.items()))
            if not oldest.unused:
                self._budgets.move_to_end(name)
                return
            del self._budgets[name]
