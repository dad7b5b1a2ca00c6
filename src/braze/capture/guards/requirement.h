// One requirement of a guard set: what must hold for the value at a source.
#pragma once

#include <cstdint>

#include "braze/capture/source.h"

namespace braze::capture {

enum class GuardKind : uint8_t {
  Type,           // value: the type
  Identity,       // value: the object
  Constant,       // value: an immutable object, compared by type and bits
  Truth,          // number: 0 or 1
  Absent,         // key: an attribute name that the instance's own dict lacks
  KeyAbsent,      // key
  LookupAbsent,   // other: the key, compared by identity, or a KeyTuple
  EmptySlot,      // key: a name among the __slots__ of the class, whose slot holds nothing
  Length,         // number
  Keys,           // value: a tuple of the keys
  Same,           // other
  Distinct,       // other
  Tensor,         // number: index of the operand
  TypeAttribute,  // value: the type, key: the name, found: what its MRO gives, or nullptr
  TypeSlots,      // value: the type, number: load::type_slots() of it
  AbcToken,       // number: of load::abc_token()
  Modes,          // number: the domain's packed modes
  Shapes,         // number: index of the check
  AllDistinct,    // number: index of the list
};

// Pointers are borrowed: from the guard set while the trace runs, then from the program's constants or watched objects.
struct Requirement {
  GuardKind kind;
  Src src = kNoSource;
  Src other = kNoSource;
  int64_t number = 0;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  PyObject* found = nullptr;
};

}  // namespace braze::capture
