// Index expressions as C++ text: 64-bit integers, or vectors of them where a symbol varies along the lanes.
#pragma once

#include <functional>
#include <string>

#include "braze/sym/expr.h"

namespace braze::codegen {

struct IndexText {
  std::string text;
  bool vector = false;   // a VL; else a long
};

// `symbol_text` gives the text of a symbol.
IndexText index_text(sym::Expr e, const std::function<IndexText(sym::Expr symbol)>& symbol_text);
std::string as_vector(const IndexText& index);

}  // namespace braze::codegen
