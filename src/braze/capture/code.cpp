#include "braze/capture/code.h"

#include <memory>
#include <unordered_map>

#include "braze/capture/cpython/decode.h"
#include "braze/support/check.h"

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

void Code::decode_instructions() {
  using cpython::Jump;
  const Ref bytes = Ref::steal(PyCode_GetCode(object));
  CHECK(static_cast<bool>(bytes));
  const auto* units = reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(bytes.get()));
  const auto n = static_cast<uint32_t>(PyBytes_GET_SIZE(bytes.get()) / 2);
  std::vector<uint32_t> jump_to;   // native targets, 0 for no jump
  index_.assign(n + 1, 0);
  uint32_t start = 0;
  for (uint32_t i = 0; i < n;) {
    const auto index = static_cast<uint32_t>(insns.size());
    index_[i] = index;
    uint32_t arg = units[2 * i + 1];
    while (cpython::is_extended_arg(units[2 * i])) {
      i++;
      index_[i] = index;
      arg = (arg << 8) | units[2 * i + 1];
    }
    const uint8_t opcode = units[2 * i];
    const cpython::Decoded decoded = cpython::canonical(opcode, arg);
    const uint32_t next = i + 1 + cpython::n_caches(opcode);
    if (decoded.op != Op::Nop) {
      insns.push_back({decoded.op, decoded.op == Op::Unknown ? opcode : decoded.arg, i, start, 0});
      start = next;
      jump_to.push_back(decoded.jump == Jump::None      ? 0
                        : decoded.jump == Jump::Forward ? next + arg + decoded.beyond
                                                        : next - arg);
    }
    for (uint32_t k = i + 1; k < next && k <= n; k++) index_[k] = static_cast<uint32_t>(insns.size());
    i = next;
  }
  index_[n] = static_cast<uint32_t>(insns.size());
  for (size_t k = 0; k < insns.size(); k++) {
    if (jump_to[k] != 0) insns[k].target = index_[jump_to[k]];
  }
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
  out.decode_instructions();
  TableReader table(code->co_exceptiontable);
  while (table.more()) {
    const uint32_t first = table.next(), n = table.next(), target = table.next(), depth = table.next();
    out.handlers.push_back({out.index_of(first), out.index_of(first + n), out.index_of(target), depth >> 1,
                            (depth & 1) != 0});
  }
  return out;
}

}  // namespace braze::capture
