// How guards read Python objects: one file per Python version knows the layout of dicts and instances.
#pragma once

#include "braze/capture/ref.h"

#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030c0000
#include "braze/capture/guard_object_311.h"
#else
#error "guards know the object layout of CPython 3.11 only"
#endif
