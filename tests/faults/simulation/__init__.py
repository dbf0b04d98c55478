"""The whole store under random scripts, beside a model that is a list of facts and a search that looks at all of them.

`model` is what a naive program would keep, `world` the store's handles on one folder and the comparison of both;
`conversations`, `questions` and `accidents` are what a step of a script can do, `failing` is how a disk fails in the
middle of it. `script` makes scripts from a seed, `running` runs many and shrinks what fails.

A new operation of the store is one method of one of these classes, a line in `script.WEIGHTS`, and a fact in `model`
and a case in `adopting` if it appends an event of a new kind.
"""
