// CPython's dicts, instances and classes, read in place. object_311.h and its neighbours say for their version:
//   dict_version(dict)         a number of the dict's present contents (keys and identities of values, not the order of an
//                              OrderedDict); no two dicts, and no two states of one, ever share it. 0: has none
//   type_version(type)         a number of the present state of the type and its bases; 0: has none
//   managed_storage(object)    where an object's attributes are, if its type has Py_TPFLAGS_MANAGED_DICT
#pragma once

#include "braze/capture/cpython/version.h"

#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#define BRAZE_UNDEF_BUILD_CORE
#endif
// 3.12's headers need C's atomics or the compiler's, and define this function themselves.
#pragma push_macro("HAVE_STD_ATOMIC")
#undef HAVE_STD_ATOMIC
#undef _PyGC_FINALIZED
extern "C" {
#include <internal/pycore_dict.h>
}
#pragma pop_macro("HAVE_STD_ATOMIC")
#ifdef BRAZE_UNDEF_BUILD_CORE
#undef Py_BUILD_CORE
#undef BRAZE_UNDEF_BUILD_CORE
#endif

#include <cstdint>

namespace braze::capture::object {

// An instance's attributes stand in its dict, or inline: then `values` are ordered as the type's shared keys, whether
// there is a dict beside them or not.
struct Storage {
  PyObject* dict = nullptr;
  PyDictValues* values = nullptr;
  PyDictKeysObject* keys = nullptr;
};

inline PyDictKeysObject* shared_keys(PyObject* object) {
  return reinterpret_cast<PyHeapTypeObject*>(Py_TYPE(object))->ht_cached_keys;
}

}  // namespace braze::capture::object

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"   // ma_version_tag, from 3.12
#if PY_MINOR_VERSION == 11
#include "braze/capture/cpython/object_311.h"
#elif PY_MINOR_VERSION == 12
#include "braze/capture/cpython/object_312.h"
#else
#include "braze/capture/cpython/object_313.h"
#endif
#pragma GCC diagnostic pop
