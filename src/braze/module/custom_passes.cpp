#include "braze/module/custom_passes.h"

#include <torch/csrc/utils/pybind.h>

#include <unordered_set>

#include "braze/graph/text.h"
#include "braze/graph/type_rules.h"
#include "braze/module/errors.h"
#include "braze/module/python_arguments.h"
#include "braze/support/check.h"
#include "braze/support/log.h"

namespace py = pybind11;

namespace braze::module {

using capture::Ref;
using graph::Argument;
using graph::Node;
using graph::Value;

namespace {

// What Python's objects share; without a graph once the pass is over.
struct View {
  graph::Graph* graph = nullptr;
  std::unordered_set<const Node*> erased;
};
using ViewPtr = std::shared_ptr<View>;

graph::Graph& graph_of(const ViewPtr& view) {
  if (view->graph == nullptr) throw py::value_error("the pass is over: its graph can't be used any more");
  return *view->graph;
}

template <class T>
struct Handle {
  ViewPtr view;
  T* object;
  bool operator==(const Handle& other) const { return object == other.object; }
  T* operator->() const { return get(); }
  T* get() const {
    graph_of(view);
    const Node* node = nullptr;
    if constexpr (std::is_same_v<T, Node>) node = object;
    else node = object->producer;
    if (view->erased.contains(node)) throw py::value_error("the node was erased");
    return object;
  }
};
using NodeHandle = Handle<Node>;
using ValueHandle = Handle<Value>;

struct SizeHandle {
  graph::Expr size = 0;
};

struct GraphHandle {
  ViewPtr view;
  graph::Graph* operator->() const { return &graph_of(view); }
};

py::object value_object(const ViewPtr& view, Value* value) {
  return value == nullptr ? py::object(py::none()) : py::cast(ValueHandle{view, value});
}

py::object size_object(graph::Expr size) {
  return size.is_constant() ? py::object(py::int_(size.constant())) : py::cast(SizeHandle{size});
}

py::object object_of(const Ref& ref) { return py::reinterpret_borrow<py::object>(ref.get()); }
Ref ref_of(const py::object& object) { return Ref::borrow(object.ptr()); }

[[noreturn]] void raise(const NotConverted& failure) {
  if (failure.why.empty()) throw py::error_already_set();
  throw py::type_error(failure.why);
}

py::object argument_object_of(const ViewPtr& view, const Argument& argument) {
  if (argument.is<graph::Opaque>()) return py::str("<" + argument.as<graph::Opaque>().text + ">");
  try {
    return object_of(argument_object(argument, {[&](Value* value) { return ref_of(value_object(view, value)); },
                                                [](graph::Expr size) { return ref_of(size_object(size)); }}));
  } catch (const NotConverted& failure) {
    raise(failure);
  }
}

Argument argument_from(const GraphHandle& graph, py::handle object, const graph::OpArgument& declared) {
  const FromPython from{[&](PyObject* o) -> Value* {
                          if (!py::isinstance<ValueHandle>(o)) return nullptr;
                          const auto handle = py::handle(o).cast<ValueHandle>();
                          if (handle.view != graph.view) throw NotConverted{"a value of another graph"};
                          return handle.get();
                        },
                        [](PyObject* o, graph::Expr& size) {
                          if (!py::isinstance<SizeHandle>(o)) return false;
                          size = py::handle(o).cast<SizeHandle>().size;
                          return true;
                        }};
  try {
    return argument_of(object.ptr(), declared, from);
  } catch (const NotConverted& failure) {
    raise(failure);
  }
}

const graph::Op& op_named(const std::string& name) {
  const graph::Op* op = graph::find_op(name);
  if (op == nullptr) throw py::value_error("braze knows no operator " + name + "; names are as \"aten.add.Tensor\"");
  if (!graph::has_type_rule(op)) throw py::value_error("operator " + name + " has no type rule, so that a pass can't insert it");
  return *op;
}

// Positional arguments, then those by name, then the schema's defaults.
std::vector<Argument> arguments_of(const GraphHandle& graph, const graph::Op& op, const py::args& args, const py::kwargs& kwargs) {
  if (args.size() > op.arguments.size()) throw py::type_error(op.name + " takes at most " + std::to_string(op.arguments.size()) + " arguments");
  std::vector<Argument> out;
  size_t named = 0;
  for (size_t i = 0; i < op.arguments.size(); ++i) {
    const graph::OpArgument& declared = op.arguments[i];
    const bool by_name = kwargs.contains(declared.name.c_str());
    named += by_name ? 1 : 0;
    if (i < args.size()) {
      if (by_name) throw py::type_error(op.name + " got two values for " + declared.name);
      out.push_back(argument_from(graph, args[i], declared));
    } else if (by_name) {
      out.push_back(argument_from(graph, kwargs[declared.name.c_str()], declared));
    } else {
      const auto value = graph::default_of(declared);
      if (!value) throw py::type_error(op.name + " needs argument " + declared.name);
      out.push_back(*value);
    }
  }
  if (named != kwargs.size()) throw py::type_error(op.name + " got an argument that it does not have");
  return out;
}

NodeHandle insert(const GraphHandle& graph, Node* before, const std::string& name, const py::args& args, const py::kwargs& kwargs) {
  const graph::Op& op = op_named(name);
  std::vector<Argument> arguments = arguments_of(graph, op, args, kwargs);
  const size_t guards = graph->env->guards().size();
  auto types = graph::infer_types(&op, arguments, {graph->env.get(), DType::F32});
  if (!types.ok()) throw py::value_error(op.name + ": " + types.why().reason);
  if (graph->env->guards().size() != guards) throw py::value_error(op.name + ": its type depends on sizes that may change");
  Node* node = graph->add_node(&op, std::move(arguments), *std::move(types), before);
  if (before != nullptr) {
    node->origin = before->origin;
    node->tags = before->tags;
  }
  return {graph.view, node};
}

Node* after(const NodeHandle& node) {
  const auto next = std::next(node->place);
  return next == node->owner->nodes.end() ? nullptr : *next;
}

void replace(const GraphHandle& graph, const ValueHandle& from, const ValueHandle& to) {
  try {
    graph->replace_uses(from.get(), to.get());
  } catch (const InternalError& error) {
    throw py::value_error(std::string("the values are of different types: ") + error.what());
  }
}

void erase(const GraphHandle& graph, const NodeHandle& node) {
  for (const Value* result : node->results)
    if (graph->has_uses(result)) throw py::value_error("a node whose results are used can't be erased: replace them first");
  graph->erase(node.get());
  graph.view->erased.insert(node.object);
}

void set_argument(const NodeHandle& node, size_t i, py::handle object) {
  if (i >= node->arguments.size()) throw py::index_error(node->op->name + " has no argument " + std::to_string(i));
  const GraphHandle graph{node.view};
  graph->set_argument(node.get(), i, argument_from(graph, object, node->op->arguments[i]));
}

template <class T>
py::class_<Handle<T>> handle_class(py::module_& m, const char* name, const char* about) {
  return py::class_<Handle<T>>(m, name, about)
      .def("__eq__", [](const Handle<T>& a, const py::object& b) { return py::isinstance<Handle<T>>(b) && a == b.cast<Handle<T>>(); })
      .def("__hash__", [](const Handle<T>& a) { return std::hash<const void*>()(a.object); });
}

py::list list_of(const ViewPtr& view, const std::vector<Value*>& values) {
  py::list out;
  for (Value* value : values) out.append(value_object(view, value));
  return out;
}

std::string name_of(const ValueHandle& v) { return v->name.empty() ? std::to_string(v->id) : v->name; }

py::tuple sizes_of(const graph::Shape& shape) {
  py::list out;
  for (graph::Expr size : shape) out.append(size_object(size));
  return py::tuple(out);
}

// What the caller of the graph relies on.
std::vector<graph::TensorType> result_types(const graph::Graph& graph) {
  std::vector<graph::TensorType> types;
  const auto add = [&](const Value* value) { types.push_back(value == nullptr ? graph::TensorType{} : value->type); };
  for (const Value* output : graph.outputs) add(output);
  for (const graph::Mutation& mutation : graph.mutations) add(mutation.value);
  for (graph::TensorType& type : types) type.requires_grad = type.wrapped_number = false;
  return types;
}

std::string error_text() {
  const py::error_already_set error;
  const std::string name = py::str(error.type().attr("__name__")), text = py::str(error.value());
  return name + (text.empty() ? "" : ": " + text.substr(0, text.find('\n')));
}

}  // namespace

std::shared_ptr<const CustomPasses> CustomPasses::make(const std::array<PyObject*, 4>& callables) {
  bool any = false;
  auto passes = std::unique_ptr<CustomPasses>(new CustomPasses);
  for (size_t i = 0; i < callables.size(); ++i) {
    if (callables[i] == nullptr || callables[i] == Py_None) continue;
    passes->callables_[i] = Ref::borrow(callables[i]);
    any = true;
  }
  if (!any) return nullptr;
  // The last owner may be a compilation on a thread without the GIL.
  return {passes.release(), [](const CustomPasses* p) {
            if (!Py_IsInitialized()) return;
            const py::gil_scoped_acquire gil;
            delete p;
          }};
}

Status CustomPasses::run(CustomPass which, graph::Graph& graph) const {
  const auto index = static_cast<size_t>(which);
  if (!callables_[index]) return Ok{};
  const std::string name = kCustomPassNames[index];
  const std::vector<graph::TensorType> before = result_types(graph);
  {
    const py::gil_scoped_acquire gil;
    const auto view = std::make_shared<View>(View{&graph, {}});
    const py::object object = py::cast(GraphHandle{view});
    const Ref result = Ref::steal(PyObject_CallOneArg(callables_[index].get(), object.ptr()));
    view->graph = nullptr;
    if (!result) return Unsupported{name + " raises " + error_text(), ""};
  }
  if (const std::string problems = graph::verify(graph); !problems.empty())
    return Unsupported{name + " leaves a graph that is wrong: " + problems, ""};
  if (result_types(graph) != before) return Unsupported{name + " changes the type or layout of a result", ""};
  if (log_enabled(Topic::kPostGrad)) log(Topic::kPostGrad, "after " + name + ":\n" + graph::print(graph));
  return Ok{};
}

void add_graph_objects(PyObject* module) {
  auto m = py::reinterpret_borrow<py::module_>(module);
  py::class_<SizeHandle>(m, "SymbolicSize", "A size that differs between calls.")
      .def("__repr__", [](const SizeHandle& s) { return to_string(s.size); });
  handle_class<Value>(m, "Value", "A tensor of a graph: an input, or a result of a node.")
      .def_property_readonly("name", [](const ValueHandle& v) { return name_of(v); })
      .def_property_readonly("producer", [](const ValueHandle& v) -> py::object {
        return v->producer == nullptr ? py::object(py::none()) : py::cast(NodeHandle{v.view, v->producer});
      })
      .def_property_readonly("users", [](const ValueHandle& v) {
        py::list out;
        for (Node* user : v->users) out.append(NodeHandle{v.view, user});
        return out;
      })
      .def_property_readonly("dtype", [](const ValueHandle& v) { return object_of(dtype_object(v->type.dtype)); })
      .def_property_readonly("device", [](const ValueHandle& v) { return object_of(device_object(v->type.device)); })
      .def_property_readonly("sizes", [](const ValueHandle& v) { return sizes_of(v->type.sizes); })
      .def_property_readonly("strides", [](const ValueHandle& v) { return sizes_of(v->type.strides); })
      .def("__repr__", [](const ValueHandle& v) {
        return "%" + name_of(v) + ": " + graph::print(v->type);
      });
  handle_class<Node>(m, "Node", "A call of an operator.")
      .def_property_readonly("op", [](const NodeHandle& n) { return n->op->name; })
      .def_property_readonly("args", [](const NodeHandle& n) {
        py::list out;
        for (const Argument& argument : n->arguments) out.append(argument_object_of(n.view, argument));
        return out;
      })
      .def_property_readonly("results", [](const NodeHandle& n) { return list_of(n.view, n->results); })
      .def_property_readonly("result", [](const NodeHandle& n) {
        if (n->results.size() != 1) throw py::value_error(n->op->name + " has " + std::to_string(n->results.size()) + " results");
        return ValueHandle{n.view, n->results[0]};
      })
      .def_property_readonly("origin", [](const NodeHandle& n) { return n->origin; })
      .def_property_readonly("is_backward", [](const NodeHandle& n) { return (n->tags & graph::kBackward) != 0; })
      .def("argument", [](const NodeHandle& n, const std::string& name) {
        const int i = n->op->argument_index(name);
        if (i < 0) throw py::key_error(n->op->name + " has no argument " + name);
        return argument_object_of(n.view, n->arguments[static_cast<size_t>(i)]);
      })
      .def("set_arg", &set_argument)
      .def("__repr__", [](const NodeHandle& n) {
        std::string text = n->op->name + "(";
        for (size_t i = 0; i < n->arguments.size(); ++i) text += (i == 0 ? "" : ", ") + graph::print(n->arguments[i]);
        return text + ")";
      });
  py::class_<GraphHandle>(m, "Graph", "The graph that a custom pass gets, to change in place.")
      .def_property_readonly("name", [](const GraphHandle& g) { return g->name; })
      .def_property_readonly("nodes", [](const GraphHandle& g) {
        py::list out;
        for (Node* node : g->nodes) out.append(NodeHandle{g.view, node});
        return out;
      })
      .def_property_readonly("inputs", [](const GraphHandle& g) { return list_of(g.view, g->inputs); })
      .def_property_readonly("outputs", [](const GraphHandle& g) { return list_of(g.view, g->outputs); })
      .def("find", [](const GraphHandle& g, const std::string& name) {
        py::list out;
        for (Node* node : g->nodes)
          if (node->op->name == name) out.append(NodeHandle{g.view, node});
        return out;
      })
      .def("insert_before", [](const GraphHandle& g, const NodeHandle& place, const std::string& op, const py::args& args,
                               const py::kwargs& kwargs) { return insert(g, place.get(), op, args, kwargs); })
      .def("insert_after", [](const GraphHandle& g, const NodeHandle& place, const std::string& op, const py::args& args,
                              const py::kwargs& kwargs) { return insert(g, after(place), op, args, kwargs); })
      .def("append", [](const GraphHandle& g, const std::string& op, const py::args& args, const py::kwargs& kwargs) {
        return insert(g, nullptr, op, args, kwargs);
      })
      .def("replace", &replace)
      .def("erase", &erase)
      .def("__str__", [](const GraphHandle& g) { return graph::print(graph_of(g.view)); })
      .def("__len__", [](const GraphHandle& g) { return g->size(); });
}

}  // namespace braze::module
