#include "braze/capture/tensor_domain.h"

namespace braze::capture {

namespace {

// Without torch no object is a tensor and no call is a tensor operation.
class NoTensors final : public TensorDomain {
 public:
  bool is_tensor(PyObject*) const override { return false; }
  NativeKind classify(PyObject*) const override { return NativeKind::Unknown; }
  std::string break_reason(PyObject*) const override { return ""; }
  uint64_t modes() const override { return 0; }
  std::string describe_modes(uint64_t) const override { return "none"; }
  Result<std::unique_ptr<TraceSession>> begin(const TraceOptions&) override {
    return Unsupported{"no tensor library is registered", ""};
  }
  bool is_constant(PyObject*) const override { return false; }
};

std::unique_ptr<TensorDomain>& registered() {
  static std::unique_ptr<TensorDomain> domain = std::make_unique<NoTensors>();
  return domain;
}

}  // namespace

void register_domain(std::unique_ptr<TensorDomain> domain) { registered() = std::move(domain); }

TensorDomain& domain() { return *registered(); }

Result<std::vector<TraceSession::ModeCall>> TraceSession::leave_modes() {
  if (domain().modes() != modes()) return Unsupported{"a torch mode that the call leaves changed", ""};
  return std::vector<ModeCall>();
}

}  // namespace braze::capture
