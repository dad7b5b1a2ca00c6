#include "braze/capture/execute/executor.h"

#include <optional>

#include "braze/capture/execute/opcodes.h"
#include "braze/support/check.h"

namespace braze::capture {

namespace {

std::string text_of(PyObject* unicode) {
  const char* s = unicode == nullptr ? nullptr : PyUnicode_AsUTF8(unicode);
  if (s == nullptr) PyErr_Clear();
  return s == nullptr ? "?" : s;
}

int line_of(const Frame& f) {
  const int line = PyCode_Addr2Line(f.code->object, static_cast<int>(f.code->insns[f.pc].native) * 2);
  return line < 0 ? f.code->object->co_firstlineno : line;
}

std::string source_line(PyObject* file, int line) {
  const Ref linecache = Ref::steal(PyImport_ImportModule("linecache"));
  const Ref text = linecache ? Ref::steal(PyObject_CallMethod(linecache.get(), "getline", "Oi", file, line)) : Ref();
  PyErr_Clear();
  if (!text || !PyUnicode_Check(text.get())) return "";
  std::string s = text_of(text.get());
  const size_t first = s.find_first_not_of(" \t"), last = s.find_last_not_of(" \t\r\n");
  return first == std::string::npos ? "" : s.substr(first, last - first + 1);
}

}  // namespace

// The innermost frame records the place, the stack and the reason; outer frames only pass it on.
void Executor::note_abort(const Abort& abort) {
  PyErr_Clear();
  if (!aborted_ && !cut_.empty()) {
    abort_ = abort;
  } else if (!aborted_) {
    abort_ = abort;
    if (abort_.position == 0) abort_.position = in_transform_ ? transform_position_ : cut_position_;
    std::vector<std::string> rows;
    for (const Frame* f = frame_; f != nullptr; f = f->caller) {
      const int line = line_of(*f);
      const std::string text = source_line(f->code->object->co_filename, line);
      if (f == frame_) {
        abort_file = text_of(f->code->object->co_filename);
        abort_line = line;
        abort_line_text = text;
      }
      rows.push_back("  File \"" + text_of(f->code->object->co_filename) + "\", line " + std::to_string(line) + ", in " +
                     text_of(f->code->object->co_qualname) + "\n" + (text.empty() ? "" : "    " + text + "\n"));
    }
    for (auto row = rows.rbegin(); row != rows.rend(); ++row) abort_stack_ += *row;
  }
  aborted_ = true;
}

void Executor::check_abort() {
  if (!aborted_) return;
  PyErr_Clear();
  throw abort_;
}

PyObject* Executor::run_frame(NativeFrame* native, bool throwing) {
  const PendingCall call = std::exchange(pending_, {});
  auto recursion = std::make_optional<RecursionScope>();
  if (!*recursion) return leave_frame(native, nullptr);
  PyObject* const generator = generator_of_frame(native);
  Frame f;
  f.view = view(native);
  f.native = native;
  f.code = &decode(f.view.code);
  f.slots = f.view.slots;
  f.sp = f.slots + *f.view.n_slots_used;
  f.function = call.function;
  f.caller = frame_;
  f.returned = call.after;
  f.can_be_cut = call.after != After::None && (frame_ == nullptr || frame_->can_be_cut);
  *f.view.n_slots_used = -1;   // as in CPython's own loop: a collection must not read a moving stack
  const size_t n = static_cast<size_t>(f.code->n_slots + f.code->n_stack) + 1;
  if (src_buffers_.size() <= depth_) src_buffers_.resize(depth_ + 16);
  std::vector<Src>& buffer = src_buffers_[depth_];
  if (buffer.size() < n) buffer.resize(n + 64);
  f.src = buffer.data();
  const int64_t next_unit = f.view.next();
  PyObject* result = nullptr;
  auto link = std::make_optional<FrameLink>(native);
  frame_ = &f;
  depth_++;
  try {
    if (generator != nullptr) {
      Fresh* record = prov.find_fresh(generator);
      f.src = record->slots.data();
      f.function = record->function;
    }
    if (call.resumed != nullptr) {
      if (generator == nullptr) std::fill(f.src, f.src + n, kNoSource);
      enter_resumed(f, call);
    } else if (generator != nullptr) {
      if (!throwing) f.src[f.sp - f.slots - 1] = call.sent;
    } else {
      std::fill(f.src, f.src + n, kNoSource);
      if (call.arguments != nullptr) bind_sources(f, call);
    }
    if (call.resumed == nullptr) {
      f.pc = f.code->index_of(static_cast<uint32_t>(throwing && next_unit > 0 ? next_unit - 1 : next_unit));
    }
    result = interpret(f, throwing || (call.resumed != nullptr && PyErr_Occurred() != nullptr));
  } catch (const Abort& abort) {
    note_abort(abort);
    PyErr_SetNone(PyExc_SystemError);   // only for CPython's own frames in between; see check_abort
  } catch (const std::exception& error) {
    note_abort(Abort{{std::string("internal error: ") + error.what(), ""}});
    PyErr_SetNone(PyExc_SystemError);
  }
  depth_--;
  frame_ = f.caller;
  if (frame_ != nullptr && frame_->can_be_cut) cut_position_ = frame_->started;
  f.sync();
  link.reset();
  recursion.reset();
  if (f.suspended) return result;
  // An exception, which lives until the trace ends, must not keep what the frames of its traceback held.
  if (frame_object(native)) {
    for (int i = 0; i < f.code->n_slots; i++) Ref::steal(std::exchange(f.slots[i], nullptr));
  }
  return leave_frame(native, result);
}

bool Executor::owns(PyObject* generator) {
  const Fresh* record = prov.find_fresh(generator);
  return record != nullptr && !record->slots.empty() && !aborted_;
}

// Finds the handler of the error that is set and goes on there; false: the error leaves the frame.
bool Executor::handle_error(Frame& f, bool reraised) {
  if (!reraised) add_traceback();
  const Handler* h = f.code->handler_of(f.pc);
  if (h == nullptr) return false;
  f.drop(f.sp - (f.slots + f.code->n_slots + h->depth));
  if (h->push_last_instruction) {
    f.push(Owned::steal(PyLong_FromLongLong(f.view.running())));
  }
  Ref exception = take_exception();
  prov.add_fresh(exception.get());
  f.push(Owned(std::move(exception)));
  f.kwnames = nullptr;
  f.pc = h->target;
  return true;
}

PyObject* Executor::interpret(Frame& f, bool throwing) {
  const Insn* insns = f.code->insns.data();
  if (throwing) {
    if (!handle_error(f, false)) return nullptr;
  }
  for (;;) {
    if (!suspended_generators_.empty()) [[unlikely]] close_dropped_generators();
    const Insn& insn = insns[f.pc];
    f.view.run(insn.native);
    f.started = ++n_instructions;
    after_ = After::None;
    if (f.can_be_cut) cut_position_ = n_instructions;
    if (n_instructions == cut_at_) [[unlikely]] cut(f);
    switch (insn.op) {
      case Op::LoadFast:
        if (!Opcodes::load_fast(f, insn.arg)) [[unlikely]] break;
        f.pc++;
        continue;
      case Op::StoreFast:
        Opcodes::store_fast(f, insn.arg);
        f.pc++;
        continue;
      case Op::LoadFastLoadFast:
        if (!Opcodes::load_fast(f, insn.arg >> 4) || !Opcodes::load_fast(f, insn.arg & 15)) break;
        f.pc++;
        continue;
      case Op::StoreFastLoadFast:
        Opcodes::store_fast(f, insn.arg >> 4);
        if (!Opcodes::load_fast(f, insn.arg & 15)) break;
        f.pc++;
        continue;
      case Op::StoreFastStoreFast:
        Opcodes::store_fast(f, insn.arg >> 4);
        Opcodes::store_fast(f, insn.arg & 15);
        f.pc++;
        continue;
      case Op::LoadConst:
        f.push(Owned::borrow(f.constant(insn.arg)));
        f.pc++;
        continue;
      case Op::PopTop:
        f.pop();
        f.pc++;
        continue;
      case Op::PushNull:
        f.push_null();
        f.pc++;
        continue;
      case Op::Jump:
        f.pc = insn.target;
        continue;
      case Op::PopJumpIfFalse:
      case Op::PopJumpIfTrue: {
        if (take_expected_branch(f, insn)) continue;
        Opcodes::expect_result(*this, f, 1, After::Again);
        const int t = truth(f.top());
        if (t < 0) break;
        f.pop();
        f.pc = (t == 1) == (insn.op == Op::PopJumpIfTrue) ? insn.target : f.pc + 1;
        continue;
      }
      case Op::JumpIfFalseOrPop:
      case Op::JumpIfTrueOrPop: {
        Opcodes::expect_result(*this, f, 0, After::Branch);
        const int t = truth(f.top());
        if (t < 0) break;
        if ((t == 1) == (insn.op == Op::JumpIfTrueOrPop)) {
          f.pc = insn.target;
        } else {
          f.pop();
          f.pc++;
        }
        continue;
      }
      case Op::PopJumpIfNone:
      case Op::PopJumpIfNotNone: {
        const bool none = is_same(f.top(), {Py_None, kNoSource}) == 1;
        f.pop();
        f.pc = none == (insn.op == Op::PopJumpIfNone) ? insn.target : f.pc + 1;
        continue;
      }
      case Op::ForIter: {
        Opcodes::expect_result(*this, f, 0, After::Next);
        Owned item = next(f.top());
        if (item) {
          f.push(std::move(item));
          f.pc++;
          continue;
        }
        if (PyErr_Occurred()) break;
        f.pop();
        f.pc = insn.target;
        continue;
      }
      case Op::Send: {
        Owned value = Opcodes::send(*this, f);
        if (!value && PyErr_Occurred()) break;
        f.pop();                          // the value that was sent
        if (Opcodes::finished) {
          if (insn.arg == kSendDropsIterator) f.pop();
          f.push(std::move(value));
          f.pc = insn.target;
        } else {
          f.push(std::move(value));
          f.pc++;
        }
        continue;
      }
      case Op::ReturnValue: {
        Owned v = f.pop();
        returned_ = v.src;
        return v.ref.release();
      }
      case Op::ReturnConst:
        returned_ = kNoSource;
        return Ref::borrow(f.constant(insn.arg)).release();
      case Op::YieldValue: {
        Owned v = f.pop();
        returned_ = v.src;
        f.suspended = true;
        f.sync();
        f.view.stand_before(insn.native + 1);
        suspend_generator(f.native, insn.arg != 0);
        note_suspended(generator_of_frame(f.native));
        return v.ref.release();
      }
      case Op::CleanupThrow:
        if (Opcodes::cleanup_throw(*this, f)) {
          f.pc++;
          continue;
        }
        if (!handle_error(f, true)) return nullptr;
        continue;
      case Op::Reraise:
        Opcodes::reraise(*this, f, insn);
        if (!handle_error(f, true)) return nullptr;
        continue;
      case Op::RaiseVarargs: {
        const bool again = Opcodes::raise(*this, f, insn.arg);
        if (!handle_error(f, again)) return nullptr;
        continue;
      }
      default:
        if (step(f, insn)) [[likely]] {
          f.pc++;
          continue;
        }
        break;
    }
    CHECK(PyErr_Occurred() != nullptr, op_name(insn.op) << " failed without an error");
    if (!handle_error(f, false)) return nullptr;
  }
}

bool Executor::step(Frame& f, const Insn& insn) {
  const uint32_t arg = insn.arg;
  switch (insn.op) {
    case Op::Copy: return f.push(Owned::borrow(f.top(arg))), true;
    case Op::Swap: {
      std::swap(f.sp[-1], f.sp[-static_cast<int64_t>(arg)]);
      std::swap(f.src[f.sp - 1 - f.slots], f.src[f.sp - arg - f.slots]);
      return true;
    }
    case Op::UnaryNot: case Op::UnaryPositive: case Op::UnaryNegative: case Op::UnaryInvert:
      Opcodes::expect_result(*this, f, 1, insn.op == Op::UnaryNot ? After::Again : After::Push);
      return Opcodes::replace(f, 1, unary(insn.op, f.top()));
    case Op::BinaryOp:
      Opcodes::expect_result(*this, f, 0, After::Forward);
      return Opcodes::replace(f, 2, binary(arg, f.top(2), f.top()));
    case Op::BinarySubscr: Opcodes::expect_result(*this, f, 2); return Opcodes::replace(f, 2, subscript(f.top(2), f.top()));
    case Op::ToBool: Opcodes::expect_result(*this, f, 1, After::Again); return Opcodes::to_bool(*this, f);
    case Op::CompareOp: Opcodes::expect_result(*this, f, 0, After::Forward); return Opcodes::compare(*this, f, arg);
    case Op::BinarySlice: Opcodes::expect_result(*this, f, 3); return Opcodes::binary_slice(*this, f);
    case Op::StoreSlice: Opcodes::expect_result(*this, f, 4, After::Drop); return Opcodes::store_slice(*this, f);
    case Op::StoreSubscr:
      Opcodes::expect_result(*this, f, 3, After::Drop);
      if (!set_subscript(f.top(2), f.top(1), f.top(3))) return false;
      return f.drop(3), true;
    case Op::DeleteSubscr:
      Opcodes::expect_result(*this, f, 2, After::Drop);
      if (!delete_subscript(f.top(2), f.top(1))) return false;
      return f.drop(2), true;
    case Op::IsOp: {
      const int same = is_same(f.top(2), f.top());
      return Opcodes::replace(f, 2, Owned::boolean((same == 1) != (arg == 1)));
    }
    case Op::ContainsOp: {
      Opcodes::expect_result(*this, f, 2, After::Contains);
      const int in = contains(f.top(), f.top(2));
      return in >= 0 && Opcodes::replace(f, 2, Owned::boolean((in == 1) != (arg == 1)));
    }
    case Op::DeleteFast:
      if (f.slots[arg] == nullptr) return Opcodes::unbound_local(f, arg);
      Ref::steal(std::exchange(f.slots[arg], nullptr));
      return true;
    case Op::LoadGlobal: {
      Owned v = load_global(f, f.name(arg >> 1));
      if (!v) return false;
      if (arg & 1) f.push_callable(std::move(v));
      else f.push(std::move(v));
      return true;
    }
    case Op::LoadFastAndClear:
      f.push(Owned::steal(std::exchange(f.slots[arg], nullptr), std::exchange(f.src[arg], kNoSource)));
      return true;
    case Op::MakeCell: return Opcodes::make_cell(*this, f, arg);
    case Op::LoadDeref: return Opcodes::load_deref(*this, f, arg);
    case Op::StoreDeref: return Opcodes::store_deref(*this, f, arg);
    case Op::DeleteDeref: fail("deletion of a captured variable");
    case Op::CopyFreeVars: return Opcodes::copy_free_vars(*this, f, arg);
    case Op::LoadAttr:
      Opcodes::expect_result(*this, f, 0, After::Attribute);
      return Opcodes::replace(f, 1, get_attribute(f.top(), f.name(arg)));
    case Op::LoadMethod: return Opcodes::load_method(*this, f, f.name(arg));
    case Op::LoadSuperAttr: return Opcodes::load_super_attr(*this, f, arg);
    case Op::StoreAttr:
      Opcodes::expect_result(*this, f, 2, After::Drop);
      if (!set_attribute(f.top(), f.name(arg), f.top(2))) return false;
      return f.drop(2), true;
    case Op::DeleteAttr:
      Opcodes::expect_result(*this, f, 1, After::Drop);
      if (!set_attribute(f.top(), f.name(arg), {})) return false;
      return f.drop(1), true;
    case Op::BuildTuple: return Opcodes::build(*this, f, arg, true);
    case Op::BuildList: return Opcodes::build(*this, f, arg, false);
    case Op::BuildSet: return Opcodes::build_set(*this, f, arg);
    case Op::BuildMap: return Opcodes::build_map(*this, f, arg);
    case Op::BuildConstKeyMap: return Opcodes::build_const_key_map(*this, f, arg);
    case Op::BuildString: return Opcodes::build_string(*this, f, arg);
    case Op::BuildSlice: return Opcodes::build_slice(*this, f, arg);
    case Op::FormatValue: return Opcodes::format_value(*this, f, arg);
    case Op::ConvertValue: return Opcodes::replace(f, 1, Opcodes::converted(*this, f.top(), arg));
    case Op::ListAppend: {
      if (!list_append(f.top(arg + 1), f.top())) return false;
      return f.pop(), true;
    }
    case Op::SetAdd: return Opcodes::set_add(*this, f, arg);
    case Op::MapAdd: {
      if (!dict_set(f.top(arg + 2), f.top(2), f.top())) return false;
      return f.drop(2), true;
    }
    case Op::ListExtend: return Opcodes::list_extend(*this, f, arg);
    case Op::SetUpdate: return Opcodes::set_update(*this, f, arg);
    case Op::DictUpdate: return Opcodes::dict_merge(*this, f, arg, false);
    case Op::DictMerge: return Opcodes::dict_merge(*this, f, arg, true);
    case Op::ListToTuple: return Opcodes::list_to_tuple(*this, f);
    case Op::UnpackSequence: return Opcodes::unpack(*this, f, arg, -1);
    case Op::UnpackEx: return Opcodes::unpack(*this, f, arg & 0xff, static_cast<int64_t>(arg >> 8));
    case Op::GetIter:
      Opcodes::expect_result(*this, f, 1, After::Iterator);
      return Opcodes::replace(f, 1, iterate(f.top()));
    case Op::GetYieldFromIter:
      return PyGen_CheckExact(f.top().object) ? true : Opcodes::replace(f, 1, iterate(f.top()));
    case Op::GetLen: {
      const int64_t n = length(f.top());
      if (n < 0) return false;
      return f.push(Owned::steal(PyLong_FromLongLong(n))), true;
    }
    case Op::MatchMapping: return Opcodes::match_kind(*this, f, Py_TPFLAGS_MAPPING);
    case Op::MatchSequence: return Opcodes::match_kind(*this, f, Py_TPFLAGS_SEQUENCE);
    case Op::MatchKeys: return Opcodes::match_keys(*this, f);
    case Op::MatchClass: return Opcodes::match_class(*this, f, arg);
    case Op::KwNames: return f.kwnames = f.constant(arg), true;
    case Op::Call: return Opcodes::call(*this, f, arg, false);
    case Op::CallKw: return Opcodes::call(*this, f, arg, true);
    case Op::CallFunctionEx: return Opcodes::call_ex(*this, f, arg);
    case Op::MakeFunction: return Opcodes::make_function(*this, f, arg);
    case Op::SetFunctionAttribute: return Opcodes::set_function_attribute(*this, f, arg);
    case Op::EndSend: return Opcodes::end_send(f);
    case Op::StopIterationError: return Opcodes::stop_iteration_error(*this, f);
    case Op::LoadAssertionError: return f.push(Owned::borrow(PyExc_AssertionError)), true;
    case Op::ImportName: return Opcodes::import_name(*this, f, arg);
    case Op::ImportFrom: return Opcodes::import_from(*this, f, arg);
    case Op::PushExcInfo: return Opcodes::push_exc_info(*this, f);
    case Op::PopExcept: return Opcodes::pop_except(f);
    case Op::CheckExcMatch: return Opcodes::check_exc_match(*this, f);
    case Op::BeforeWith: return Opcodes::before_with(*this, f);
    case Op::WithExceptStart: return Opcodes::with_except_start(*this, f);
    case Op::StoreGlobal:
      if (!dict_set(globals_value(f), {f.name(arg), kNoSource}, f.top())) return false;
      return f.drop(1), true;
    case Op::DeleteGlobal:
      if (dict_delete(globals_value(f), {f.name(arg), kNoSource})) return true;
      PyErr_Format(PyExc_NameError, "name '%.200s' is not defined", PyUnicode_AsUTF8(f.name(arg)));
      return false;
    case Op::LoadBuildClass: fail("a class statement inside the function");
    case Op::ReturnGenerator: fail("a generator started outside of the trace");
    case Op::LoadName: case Op::StoreName: case Op::DeleteName: case Op::LoadClassDeref:
      fail("code of a class body or module");
    case Op::Unknown: fail("an instruction that capture does not know (number " + std::to_string(arg) + ")");
    case Op::Nop: return true;
    case Op::LoadFast: case Op::StoreFast: case Op::LoadFastLoadFast: case Op::StoreFastLoadFast:
    case Op::StoreFastStoreFast: case Op::ReturnConst: case Op::CleanupThrow: case Op::LoadConst: case Op::PopTop: case Op::PushNull: case Op::Jump:
    case Op::PopJumpIfFalse: case Op::PopJumpIfTrue: case Op::PopJumpIfNone: case Op::PopJumpIfNotNone:
    case Op::JumpIfFalseOrPop: case Op::JumpIfTrueOrPop: case Op::ForIter: case Op::Send: case Op::ReturnValue:
    case Op::YieldValue: case Op::Reraise: case Op::RaiseVarargs:
      break;   // in interpret()
  }
  CHECK(false, op_name(insn.op));
  return false;
}

}  // namespace braze::capture
