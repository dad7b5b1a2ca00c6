"""Writes the opcode rows of the running Python version to standard output: number, name, inline cache entries."""
import opcode
import sys

print(f"// Opcodes of CPython {sys.version_info[0]}.{sys.version_info[1]}, written by tools/opcodes/write_def.py.")
print("// OPCODE(number, name, inline cache entries)")
for name, number in sorted(opcode.opmap.items(), key=lambda row: row[1]):
    print(f"OPCODE({number}, {name}, {opcode._inline_cache_entries[number]})")
