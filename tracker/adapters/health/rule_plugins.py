"""Rules of other packages: each call has a limit of time, and what fails names its package."""

import logging
from collections.abc import Sequence

from eval_jobs.errors import ConfigError, TrackerError
from eval_jobs.host.plugins import Found, PluginKind, find_plugin
from tracker.adapters.health.rule_guard import TooSlow, limited_cpu
from tracker.domain.health.rules.code import CodeRule, ReadLine, RuleFinding

log = logging.getLogger(__name__)

RULES = PluginKind(group="tracker.rules", what="rule", setting="health.plugins", built_in=())
LIMIT_S = 0.5
"""CPU time for what was read at once, at most 128 KB of a log."""


class RulePlugins:
    """`code_rules.CodeRules` of the named entry points. For the main thread."""

    def __init__(self, names: Sequence[str]) -> None:
        """Find and import them.

        Raises:
            ConfigError: one is not installed, cannot be imported, or is no function.
        """
        self._rules: dict[str, tuple[Found, CodeRule]] = {name: _loaded(name) for name in names}
        self._reported: set[str] = set()

    def __call__(self, lines: Sequence[ReadLine]) -> list[tuple[str, RuleFinding]]:
        """Return what the rules find; one that takes too long is disabled, one that fails is reported once."""
        findings: list[tuple[str, RuleFinding]] = []
        for name, (found, rule) in tuple(self._rules.items()):
            try:
                with found.blamed(ConfigError), limited_cpu(LIMIT_S):
                    findings += [(name, _checked(finding, lines)) for finding in rule(lines)]
            except TooSlow:
                del self._rules[name]
                log.warning("%s is disabled: it took longer than %.1f s for %d lines", found, LIMIT_S, len(lines))
            except TrackerError as error:
                self._report(str(error))
        return findings

    def _report(self, problem: str) -> None:
        if problem not in self._reported:
            self._reported.add(problem)
            log.warning("%s", problem)


def _loaded(name: str) -> tuple[Found, CodeRule]:
    found = find_plugin(RULES, name)
    rule = found.load()
    if not callable(rule):
        raise ConfigError(f"{found} is no function", hint=f"report this bug to the author of {found.origin}")
    return found, rule


def _checked(finding: RuleFinding, lines: Sequence[ReadLine]) -> RuleFinding:
    if not isinstance(finding, RuleFinding):
        raise TypeError(f"it returned {type(finding).__name__} instead of RuleFinding")
    if not any(finding.line is line for line in lines):
        raise ValueError("the line of its finding is none of those that it was called with")
    return finding
