"""The tests of mnemolog. `children/` holds what other processes do in `contract/` and `faults/`."""
