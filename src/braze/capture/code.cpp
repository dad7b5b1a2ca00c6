#include "braze/capture/code.h"

#include <memory>
#include <unordered_map>

namespace braze::capture {

namespace {

// Variable-length integers of the exception table: six bits a byte, most significant first.
class TableReader {
 public:
  explicit TableReader(PyObject* table)
      : p_(reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(table))), end_(p_ + PyBytes_GET_SIZE(table)) {}
  bool more() const { return p_ < end_; }
  uint32_t next() {
    unsigned byte = *p_++;
    uint32_t value = byte & 63u;
    while (byte & 64u) {
      byte = *p_++;
      value = (value << 6) | (byte & 63u);
    }
    return value;
  }

 private:
  const unsigned char* p_;
  const unsigned char* end_;
};

}  // namespace

const char* op_name(Op op) {
  static constexpr const char* kNames[] = {
#define OP(name) #name,
#include "braze/capture/ops.def"
#undef OP
  };
  return kNames[static_cast<size_t>(op)];
}

const Handler* Code::handler_of(uint32_t pc) const {
  for (const Handler& h : handlers) {
    if (h.first <= pc && pc < h.last) return &h;
  }
  return nullptr;
}

// Entries live as long as the process: a decoded code object is a few kilobytes and code objects are rarely dropped.
const Code& decode(PyCodeObject* code) {
  static auto& cache = *new std::unordered_map<PyCodeObject*, std::unique_ptr<Code>>;
  std::unique_ptr<Code>& entry = cache[code];
  if (entry) return *entry;
  entry = std::make_unique<Code>();
  Code& out = *entry;
  out.object = reinterpret_cast<PyCodeObject*>(Ref::borrow(reinterpret_cast<PyObject*>(code)).release());
  out.names = code->co_names;
  out.constants = code->co_consts;
  out.n_slots = code->co_nlocalsplus;
  out.n_stack = code->co_stacksize;
  out.generator = (code->co_flags & CO_GENERATOR) != 0;
  out.coroutine = (code->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE)) != 0;
  decode_instructions(code, out);
  TableReader table(code->co_exceptiontable);
  while (table.more()) {
    const uint32_t first = table.next(), n = table.next(), target = table.next(), depth = table.next();
    out.handlers.push_back({out.index_of(first), out.index_of(first + n), out.index_of(target), depth >> 1,
                            (depth & 1) != 0});
  }
  return out;
}

}  // namespace braze::capture
