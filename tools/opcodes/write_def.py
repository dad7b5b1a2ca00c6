"""Writes the opcode rows of the running Python version to standard output: number, name, inline cache entries."""
import opcode
import sys

caches = opcode._inline_cache_entries   # a list before 3.13, then a dict by name


def n_caches(name, number):
    return caches.get(name, 0) if isinstance(caches, dict) else caches[number]


print(f"// Opcodes of CPython {sys.version_info[0]}.{sys.version_info[1]}, written by tools/opcodes/write_def.py.")
print("// OPCODE(number, name, inline cache entries)")
for name, number in sorted(opcode.opmap.items(), key=lambda row: row[1]):
    # Neither what only the compiler uses nor what only tracing writes stands in a code object's own instructions.
    if number < 256 and not name.startswith("INSTRUMENTED_"):
        print(f"OPCODE({number}, {name}, {n_caches(name, number)})")
