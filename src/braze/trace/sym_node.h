// The bridge between libtorch's symbolic numbers and sym::Expr: Python sees torch.SymInt, libtorch computes with SymInt,
// and each operation builds an Expr; of a torch.SymFloat, a node of the trace's NumberEnv. Questions go to that, which
// answers from structure or records a guard.
#pragma once

#include <Python.h>
#include <c10/core/SymFloat.h>
#include <c10/core/SymInt.h>

#include <optional>

#include "braze/trace/number_env.h"

namespace braze::trace {

c10::SymInt to_symint(sym::Expr e, const EnvPtr& env);
// A size that depends on data: arithmetic gives another such size, and questions throw Abort.
c10::SymInt unknown_size();
// Throws Abort for a SymInt of another owner.
sym::Expr to_expr(const c10::SymInt& value);

// A new torch.SymFloat, or a float for a constant. Needs the GIL.
PyObject* make_symfloat(FloatId id, const EnvPtr& env);
c10::SymFloat to_symfloat(FloatId id, const EnvPtr& env);
// The node of a symbolic float of this trace that is no constant.
std::optional<FloatId> to_float_id(const c10::SymFloat& value);

}  // namespace braze::trace
