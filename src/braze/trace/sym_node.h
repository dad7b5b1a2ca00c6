// The bridge between libtorch's SymInt and sym::Expr: Python sees torch.SymInt, libtorch computes with SymInt, and each
// operation builds an Expr. Questions go to the trace's ShapeEnv, which answers from structure or records a guard.
#pragma once

#include <c10/core/SymInt.h>

#include <memory>

#include "braze/sym/shape_env.h"

namespace braze::trace {

using EnvPtr = std::shared_ptr<sym::ShapeEnv>;

c10::SymInt to_symint(sym::Expr e, const EnvPtr& env);
// A size that depends on data: arithmetic gives another such size, and questions throw Abort.
c10::SymInt unknown_size();
// Throws Abort for a SymInt of another owner.
sym::Expr to_expr(const c10::SymInt& value);

}  // namespace braze::trace
