"""The protocol in TLA+: modules that TLC checks, and mutants that must fail."""
