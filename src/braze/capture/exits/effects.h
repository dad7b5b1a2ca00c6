// Side effects of a traced call. Nothing outside changes while tracing: a change of an existing container, a print, a
// log message is noted here in order, and the exit does it for real. What the traced program then reads of a changed
// container comes from a payload, a fresh copy with the same changes.
#pragma once

#include <vector>

#include "braze/capture/guards/object.h"
#include "braze/capture/value.h"

namespace braze::capture {

struct Effect {
  Ref callable;
  std::vector<Owned> arguments;
  Ref kwnames;
  bool superseded = false;        // nobody sees it
};

// An existing list, dict or set that the trace changed.
struct Changed {
  Ref owner;
  Src src = kNoSource;
  Ref payload;                    // made when first needed: copying guards the contents
  std::vector<size_t> effects;    // its changes, in the list of all effects
  struct Entry {
    Ref key;
    Owned value;                  // empty: deleted
  };
  std::vector<Entry> entries;     // dicts without a payload: what the changes say about single keys

  Entry* find(PyObject* key) {
    for (Entry& e : entries) {
      if (object::keys_match(e.key.get(), key) == object::Match::Yes) return &e;
    }
    return nullptr;
  }
};

}  // namespace braze::capture
