// Instruction handlers that are more than one call of the executor. false: a Python error is set.
#pragma once

#include "braze/capture/execute/executor.h"

namespace braze::capture {

struct Opcodes {
  // Replaces the top n stack entries by the result, if there is one.
  static bool replace(Frame& f, int64_t n, Owned result) {
    if (!result) return false;
    f.drop(n);
    f.push(std::move(result));
    return true;
  }

  // What happens with the result of the function that is called next, in place of the top n entries.
  static void expect_result(Executor& x, Frame& f, int64_t n, After after = After::Push) {
    f.operands = n;
    x.expect(after);
  }

  static bool to_bool(Executor& x, Frame& f);
  static bool compare(Executor& x, Frame& f, uint32_t arg);

  // opcodes_names.cpp
  static bool load_fast(Frame& f, uint32_t slot) {
    PyObject* const v = f.slots[slot];
    if (v == nullptr) [[unlikely]] return unbound_local(f, slot);
    f.push(Owned::borrow(v, f.src[slot]));
    return true;
  }
  static void store_fast(Frame& f, uint32_t slot) {
    const Ref old = Ref::steal(f.slots[slot]);
    f.slots[slot] = *--f.sp;
    f.src[slot] = f.src[f.sp - f.slots];
  }
  static bool unbound_local(Frame& f, uint32_t slot);
  static bool make_cell(Executor& x, Frame& f, uint32_t slot);
  static bool load_deref(Executor& x, Frame& f, uint32_t slot);
  static bool store_deref(Executor& x, Frame& f, uint32_t slot);
  static bool copy_free_vars(Executor& x, Frame& f, uint32_t n);
  static bool import_name(Executor& x, Frame& f, uint32_t arg);
  static bool import_from(Executor& x, Frame& f, uint32_t arg);

  // opcodes_containers.cpp
  static bool build(Executor& x, Frame& f, uint32_t n, bool tuple);
  static bool build_set(Executor& x, Frame& f, uint32_t n);
  static bool build_map(Executor& x, Frame& f, uint32_t n);
  static bool build_const_key_map(Executor& x, Frame& f, uint32_t n);
  static bool build_string(Executor& x, Frame& f, uint32_t n);
  static bool build_slice(Executor& x, Frame& f, uint32_t n);
  static bool binary_slice(Executor& x, Frame& f);
  static bool store_slice(Executor& x, Frame& f);
  static bool format_value(Executor& x, Frame& f, uint32_t flags);
  static Owned converted(Executor& x, Value value, uint32_t conversion);
  static bool set_add(Executor& x, Frame& f, uint32_t depth);
  static bool list_extend(Executor& x, Frame& f, uint32_t depth);
  static bool set_update(Executor& x, Frame& f, uint32_t depth);
  static bool dict_merge(Executor& x, Frame& f, uint32_t depth, bool reject_duplicates);
  static bool list_to_tuple(Executor& x, Frame& f);
  static bool unpack(Executor& x, Frame& f, uint32_t before, int64_t after);   // after -1: no starred target
  static bool match_kind(Executor& x, Frame& f, unsigned long flag);
  static bool match_keys(Executor& x, Frame& f);
  static bool match_class(Executor& x, Frame& f, uint32_t n);

  // opcodes_calls.cpp
  static bool load_method(Executor& x, Frame& f, PyObject* name);
  static bool load_super_attr(Executor& x, Frame& f, uint32_t arg);
  static bool call(Executor& x, Frame& f, uint32_t n, bool names_on_stack);
  static bool call_ex(Executor& x, Frame& f, uint32_t flags);
  static bool make_function(Executor& x, Frame& f, uint32_t flags);
  static bool set_function_attribute(Executor& x, Frame& f, uint32_t flag);
  static bool end_send(Frame& f);
  static Owned send(Executor& x, Frame& f);
  static inline thread_local bool finished = false;   // send's second result

  // opcodes_exceptions.cpp
  static bool raise(Executor& x, Frame& f, uint32_t n);   // an error is set; true: one that had been raised before
  static void reraise(Executor& x, Frame& f, const Insn& insn);
  static bool push_exc_info(Executor& x, Frame& f);
  static bool pop_except(Frame& f);
  static bool stop_iteration_error(Executor& x, Frame& f);
  static bool cleanup_throw(Executor& x, Frame& f);   // false: as reraise
  static bool check_exc_match(Executor& x, Frame& f);
  static bool before_with(Executor& x, Frame& f);
  static bool with_except_start(Executor& x, Frame& f);
};

}  // namespace braze::capture
