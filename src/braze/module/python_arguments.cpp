#include "braze/module/python_arguments.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/utils/tensor_memoryformats.h>

#include "braze/trace/torch_types.h"

namespace braze::module {

using capture::Ref;
using graph::Argument;

Ref checked(PyObject* made) {
  if (made == nullptr) throw NotConverted{};
  return Ref::steal(made);
}

Ref integer_object(graph::Expr e) {
  if (!e.is_constant()) throw NotConverted{"a symbolic size"};
  return checked(PyLong_FromLongLong(e.constant()));
}

Ref dtype_object(DType dtype) {
  return Ref::borrow(reinterpret_cast<PyObject*>(torch::getTHPDtype(trace::to_torch(dtype))));
}

Ref device_object(Device device) { return checked(THPDevice_New(trace::to_torch(device))); }

Ref argument_object(const Argument& argument, const ToPython& to) {
  if (argument.is_none()) return Ref::borrow(Py_None);
  if (argument.is<graph::Value*>()) return to.tensor(argument.as<graph::Value*>());
  if (argument.is<graph::Expr>()) return to.size(argument.as<graph::Expr>());
  if (argument.is<double>()) return checked(PyFloat_FromDouble(argument.as<double>()));
  if (argument.is<bool>()) return Ref::borrow(argument.as<bool>() ? Py_True : Py_False);
  if (argument.is<std::complex<double>>()) {
    const auto c = argument.as<std::complex<double>>();
    return checked(PyComplex_FromDoubles(c.real(), c.imag()));
  }
  if (argument.is<std::string>()) return checked(PyUnicode_FromString(argument.as<std::string>().c_str()));
  if (argument.is<DType>()) return dtype_object(argument.as<DType>());
  if (argument.is<Device>()) return device_object(argument.as<Device>());
  if (argument.is<graph::Layout>()) {
    const auto layout = static_cast<c10::Layout>(argument.as<graph::Layout>().value);
    return Ref::borrow(reinterpret_cast<PyObject*>(torch::getTHPLayout(layout)));
  }
  if (argument.is<graph::MemoryFormat>()) {
    const auto format = static_cast<c10::MemoryFormat>(argument.as<graph::MemoryFormat>().value);
    return Ref::borrow(torch::utils::getTHPMemoryFormat(format));
  }
  if (!argument.is<graph::ArgumentList>()) throw NotConverted{"an object that Python can't hold"};
  Ref list = checked(PyList_New(0));
  for (const Argument& item : argument.as<graph::ArgumentList>())
    if (PyList_Append(list.get(), argument_object(item, to).get()) < 0) throw NotConverted{};
  return list;
}

Argument argument_of(PyObject* object, const graph::OpArgument& declared, const FromPython& from) {
  const std::string_view type = declared.base_type();
  const auto refuse = [&]() -> Argument {
    throw NotConverted{"argument " + declared.name + " must be a " + declared.type + ", not " + Py_TYPE(object)->tp_name};
  };
  if (object == Py_None) {
    if (type == "Tensor") return static_cast<graph::Value*>(nullptr);
    return {};
  }
  if (PyList_Check(object) || PyTuple_Check(object)) {
    if (!declared.is_list()) return refuse();
    graph::ArgumentList list;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
      list.push_back(argument_of(PySequence_Fast_GET_ITEM(object, i), declared, from));
    return list;
  }
  if (graph::Value* value = from.tensor(object)) return type == "Tensor" ? Argument(value) : refuse();
  graph::Expr size = 0;
  if (from.size(object, size)) return size;
  if (PyBool_Check(object)) return object == Py_True;
  if (PyLong_Check(object)) {
    const int64_t n = PyLong_AsLongLong(object);
    if (n == -1 && PyErr_Occurred()) throw NotConverted{};
    if (type == "ScalarType" || type == "Layout" || type == "MemoryFormat" || type == "str") return refuse();
    return type == "float" ? Argument(static_cast<double>(n)) : Argument(graph::Expr(n));
  }
  if (PyFloat_Check(object)) return type == "int" || type == "SymInt" || type == "bool" ? refuse() : Argument(PyFloat_AS_DOUBLE(object));
  if (PyComplex_Check(object)) return std::complex<double>(PyComplex_RealAsDouble(object), PyComplex_ImagAsDouble(object));
  if (PyUnicode_Check(object)) return type == "str" ? Argument(std::string(PyUnicode_AsUTF8(object))) : refuse();
  if (THPDtype_Check(object)) return trace::from_torch(reinterpret_cast<THPDtype*>(object)->scalar_type);
  if (THPDevice_Check(object)) return trace::from_torch(reinterpret_cast<THPDevice*>(object)->device);
  if (THPLayout_Check(object)) return graph::Layout{static_cast<int8_t>(reinterpret_cast<THPLayout*>(object)->layout)};
  if (THPMemoryFormat_Check(object))
    return graph::MemoryFormat{static_cast<int8_t>(reinterpret_cast<THPMemoryFormat*>(object)->memory_format)};
  return refuse();
}

}  // namespace braze::module
