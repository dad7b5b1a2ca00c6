#include "braze/module/python_backend.h"

#include <unordered_map>

#include "braze/capture/ref.h"
#include "braze/module/callable_executor.h"
#include "braze/module/python_arguments.h"
#include "braze/support/check.h"

namespace braze::module {

using capture::Ref;

namespace {

Ref size_tuple(const graph::Shape& shape) {
  Ref out = checked(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (size_t i = 0; i < shape.size(); ++i)
    PyTuple_SET_ITEM(out.get(), static_cast<Py_ssize_t>(i), integer_object(shape[i]).release());
  return out;
}

class Converter {
 public:
  explicit Converter(const std::string& backend) {
    const Ref module = checked(PyImport_ImportModule("braze._backends"));
    builder_ = checked(PyObject_CallMethod(module.get(), "GraphBuilder", "s", backend.c_str()));
  }

  Ref compile(const graph::Graph& graph) {
    for (size_t i = 0; i < graph.inputs.size(); ++i) add_input(*graph.inputs[i], i);
    for (const graph::Node* node : graph.nodes) add_node(*node);
    std::vector<const graph::Value*> outputs(graph.outputs.begin(), graph.outputs.end());
    for (const graph::Mutation& mutation : graph.mutations) outputs.push_back(mutation.value);
    Ref list = checked(PyList_New(0));
    for (const graph::Value* value : outputs)
      if (PyList_Append(list.get(), value == nullptr ? Py_None : nodes_.at(value).get()) < 0) throw NotConverted{};
    return checked(PyObject_CallMethod(builder_.get(), "compile", "O", list.get()));
  }

 private:
  void add_input(const graph::Value& value, size_t number) {
    if (value.type.wrapped_number) throw NotConverted{"a Python number that changes between calls"};
    const std::string name = value.name.empty() ? "input_" + std::to_string(number) : value.name;
    nodes_[&value] = checked(PyObject_CallMethod(
        builder_.get(), "input", "sOOOO", name.c_str(), size_tuple(value.type.sizes).get(),
        size_tuple(value.type.strides).get(), dtype_object(value.type.dtype).get(), device_object(value.type.device).get()));
  }

  void add_node(const graph::Node& node) {
    for (const graph::Value* result : node.results)
      if (result->type.wrapped_number) throw NotConverted{"a number that is read out of a tensor"};
    Ref args = checked(PyList_New(0)), kwargs = checked(PyDict_New());
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      const graph::OpArgument& declared = node.op->arguments[i];
      const Ref value = object(node.arguments[i]);
      const int failed = declared.keyword_only ? PyDict_SetItemString(kwargs.get(), declared.name.c_str(), value.get())
                                               : PyList_Append(args.get(), value.get());
      if (failed != 0) throw NotConverted{};
    }
    const Ref tuple = checked(PyList_AsTuple(args.get())), paths = result_paths(node);
    const std::string name = node.op->schema.substr(0, node.op->schema.find('('));
    const Ref made = checked(PyObject_CallMethod(builder_.get(), "call", "sOOO", name.c_str(), tuple.get(), kwargs.get(),
                                                 paths.get()));
    for (size_t i = 0; i < node.results.size(); ++i)
      nodes_[node.results[i]] = Ref::borrow(PyList_GET_ITEM(made.get(), static_cast<Py_ssize_t>(i)));
  }

  // For each tensor the indices that lead to it in what the operator returns.
  static Ref result_paths(const graph::Node& node) {
    Ref out = checked(PyList_New(0));
    const auto add = [&](Ref path) {
      if (PyList_Append(out.get(), path.get()) < 0) throw NotConverted{};
    };
    const std::vector<std::string>& returns = node.op->returns;
    size_t lists = 0, tensors = 0;
    for (const std::string& type : returns) {
      lists += type == "Tensor[]" ? 1 : 0;
      tensors += type == "Tensor" ? 1 : 0;
    }
    CHECK(lists <= size_t{1}, "more than one list among the results of " << node.op->name);
    const size_t in_list = node.results.size() - tensors;
    for (size_t i = 0; i < returns.size(); ++i) {
      const auto place = static_cast<Py_ssize_t>(i);
      if (returns[i] == "Tensor") {
        add(returns.size() == 1 ? checked(PyTuple_New(0)) : checked(Py_BuildValue("(n)", place)));
      } else if (returns[i] == "Tensor[]") {
        for (size_t k = 0; k < in_list; ++k) {
          const auto item = static_cast<Py_ssize_t>(k);
          add(checked(returns.size() == 1 ? Py_BuildValue("(n)", item) : Py_BuildValue("(nn)", place, item)));
        }
      }
    }
    return out;
  }

  Ref object(const graph::Argument& argument) {
    const auto tensor = [this](graph::Value* value) {
      return value == nullptr ? Ref::borrow(Py_None) : nodes_.at(value);
    };
    return argument_object(argument, {tensor, integer_object});
  }

  Ref builder_;
  std::unordered_map<const graph::Value*, Ref> nodes_;
};

std::string take_error() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const Ref owned[] = {Ref::steal(type), Ref::steal(value), Ref::steal(traceback)};
  std::string text = type == nullptr ? "error" : reinterpret_cast<PyTypeObject*>(type)->tp_name;
  if (const Ref words = Ref::steal(PyObject_Str(value)); words)
    if (const char* utf8 = PyUnicode_AsUTF8(words.get())) text += std::string(": ") + utf8;
  PyErr_Clear();
  return text;
}

}  // namespace

Result<std::shared_ptr<Executable>> compile_in_python(const graph::Graph& graph, const trace::GraphContext& context) {
  try {
    const Ref function = Converter(context.backend).compile(graph);
    if (!PyCallable_Check(function.get())) throw NotConverted{"it returned no callable"};
    return make_callable_executor(function.get(), graph, context);
  } catch (const NotConverted& failure) {
    return Unsupported{"backend " + context.backend + ": " + (failure.why.empty() ? take_error() : failure.why), ""};
  }
}

}  // namespace braze::module
