#include "braze/capture/source.h"

#include <algorithm>
#include <cctype>

#include "braze/capture/guards/constant.h"
#include "braze/support/check.h"
#include "braze/support/hash.h"

namespace braze::capture {

namespace {

bool same_key(PyObject* a, PyObject* b) {
  if (a == b) return true;
  return a != nullptr && b != nullptr && is_value_constant(a) && constants_equal(a, b);
}

std::string name_of(PyObject* key) {
  if (key == nullptr || !PyUnicode_Check(key)) return constant_text(key);
  const char* utf8 = PyUnicode_AsUTF8(key);
  if (utf8 == nullptr) return PyErr_Clear(), "?";
  return utf8;
}

// How source text would call a module, class or function; for other objects their text.
std::string object_name(PyObject* object) {
  std::string text = constant_text(object);
  for (const char* word : {"module ", "function "}) {
    if (text.starts_with(word)) return text.substr(std::string_view(word).size());
  }
  return text;
}

bool is_index(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

// Of a snapshot it is the name already.
std::string extra_name(const Source& s) {
  return PyUnicode_Check(s.extra.get()) ? name_of(s.extra.get()) : object_name(s.extra.get());
}

// The registries in which nn.Module keeps what users write as plain attributes.
bool is_module_registry(const Source& source) {
  if (source.kind != SourceKind::Attr) return false;
  const std::string name = name_of(source.key.get());
  return name == "_modules" || name == "_parameters" || name == "_buffers";
}

}  // namespace

SourceTable::SourceTable() { sources_.emplace_back(); }

Src SourceTable::intern(SourceKind kind, Src base, int64_t index, PyObject* key, PyObject* extra) {
  CHECK(base < sources_.size());
  uint64_t h = mix(mix(mix(0, static_cast<uint64_t>(kind)), base), static_cast<uint64_t>(index));
  h = mix(mix(h, hash_constant(key)), reinterpret_cast<uintptr_t>(extra));
  const int64_t known = index_.find(h, [&](uint32_t row) {
    const Source& s = sources_[row];
    return s.kind == kind && s.base == base && s.index == index && s.extra.get() == extra && same_key(s.key.get(), key);
  });
  if (known >= 0) return static_cast<Src>(known);
  Ref held = Ref::borrow(key);
  if (key != nullptr && PyUnicode_CheckExact(key)) {   // loads then find their entry by comparing pointers
    PyObject* interned = held.release();
    PyUnicode_InternInPlace(&interned);
    held = Ref::steal(interned);
  }
  const Src src = static_cast<Src>(sources_.size());
  sources_.push_back({kind, base, index, std::move(held), Ref::borrow(extra)});
  index_.insert(h, src);
  return src;
}

std::vector<Src> SourceTable::elements(Src key_tuple) const {
  PyObject* const numbers = sources_[key_tuple].key.get();
  std::vector<Src> out;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(numbers); i++) {
    out.push_back(static_cast<Src>(PyLong_AsUnsignedLong(PyTuple_GET_ITEM(numbers, i))));
  }
  return out;
}

SourceTable SourceTable::snapshot() const {
  SourceTable out;
  out.sources_ = sources_;
  out.argument_names_ = argument_names_;
  out.callee_name_ = callee_name_;
  for (Source& s : out.sources_) {
    if (!s.extra || is_value_constant(s.extra.get())) continue;
    Ref text = Ref::steal(PyUnicode_FromString(object_name(s.extra.get()).c_str()));
    if (!text) PyErr_Clear();
    s.extra = std::move(text);
  }
  return out;
}

std::string SourceTable::describe(Src src) const {
  const Source& s = sources_[src];
  const auto base = [&] { return describe(s.base); };
  const std::string number = std::to_string(s.index);
  switch (s.kind) {
    case SourceKind::None: return "<a value made in the call>";
    case SourceKind::Callee: return callee_name_;
    case SourceKind::Arg: {
      const auto i = static_cast<size_t>(s.index);
      return i < argument_names_.size() && !argument_names_[i].empty() ? argument_names_[i] : "argument " + number;
    }
    case SourceKind::Global: return name_of(s.key.get());
    case SourceKind::Closure:
    case SourceKind::ClosureCell: {
      // The name of the free variable, if the function is known by then; a closure prints as the user wrote it.
      const std::string cell = s.kind == SourceKind::ClosureCell ? "cell of " : "";
      if (s.key) return cell + name_of(s.key.get());
      return cell + base() + ".__closure__[" + number + "]";
    }
    case SourceKind::FuncDefaults: return base() + ".__defaults__";
    case SourceKind::FuncKwDefaults: return base() + ".__kwdefaults__";
    case SourceKind::FuncCode: return base() + ".__code__";
    case SourceKind::Attr:
    case SourceKind::Member: {
      const std::string name = name_of(s.key.get());
      return base() + (name == "()" ? "" : ".") + name;   // the referent of a weak reference
    }
    case SourceKind::TypeAttr: return base() + "." + name_of(s.key.get());
    case SourceKind::Type: return "type(" + base() + ")";
    case SourceKind::Dict: return base() + ".__dict__";
    case SourceKind::Item: return base() + "[" + number + "]";
    case SourceKind::Key: {
      const Source& holder = sources_[s.base];
      if (s.key && PyUnicode_Check(s.key.get())) {
        const std::string name = name_of(s.key.get());
        if (is_module_registry(holder)) {
          return describe(holder.base) + (is_index(name) ? "[" + name + "]" : "." + name);
        }
        if (holder.kind == SourceKind::Dict) return describe(holder.base) + "." + name;
      }
      return base() + "[" + constant_text(s.key.get()) + "]";
    }
    case SourceKind::Lookup: return base() + "[" + describe(static_cast<Src>(s.index)) + "]";
    case SourceKind::KeyTuple: {
      std::string out;
      for (const Src element : elements(src)) out += (out.empty() ? "(" : ", ") + describe(element);
      return out.empty() ? "()" : out + ")";
    }
    case SourceKind::DictValue: return "list(" + base() + ".values())[" + number + "]";
    case SourceKind::DictKey: return "list(" + base() + ")[" + number + "]";
    case SourceKind::Method: return base() + (s.index == 0 ? ".__self__" : ".__func__");
    case SourceKind::SuperAttr: return "super(" + extra_name(s) + ", " + base() + ")." + name_of(s.key.get());
    case SourceKind::ImportedModule: return "sys.modules[" + constant_text(s.key.get()) + "]";
    case SourceKind::Handled: return "sys.exception()";
    case SourceKind::Constant: return extra_name(s);
  }
  return "?";
}

}  // namespace braze::capture
