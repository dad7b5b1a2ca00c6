// Text to object bytes in this process: clang's front end, a short pass list, the X86 back end with SelectionDAG.
// What stands here was chosen by measuring (docs/adding_a_target.md): no instcombine, no unrolling, no vectorisers, loop
// strength reduction off; the emitter prints loops and vectors as they shall be.
#include <clang/Basic/DiagnosticOptions.h>
#include <clang/CodeGen/CodeGenAction.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/VirtualFileSystem.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "braze/jit/clang/clang_api.h"
#include "braze/jit/clang/linker.h"

struct BrazeClangObject {
  llvm::SmallVector<char, 0> bytes;
  std::string error;
};

namespace {

constexpr const char* kTriple = "x86_64-unknown-linux-gnu";
constexpr const char* kFile = "kernels.cpp";
constexpr const char* kFrontArguments[] = {
    "-emit-llvm-only", "-x", "c++", "-std=c++20", "-disable-llvm-passes", "-O2", "-ffp-contract=off", "-ffreestanding",
    "-mframe-pointer=none", "-mprefer-vector-width=512", "-relaxed-aliasing", "-fwrapv", "-fno-caret-diagnostics",
    "-w"};
// sroa before inlining matters: arguments of the small helpers are in registers before they are copied into the kernel.
constexpr const char* kPasses =
    "function(sroa,early-cse),always-inline,globaldce,function(sroa,early-cse,simplifycfg,instsimplify,"
    "loop-simplify,lcssa,loop-mssa(loop-rotate,licm),simplifycfg,instsimplify)";

double now_ms() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

// Target machines are costly to make (0.5-1 ms: the feature string is parsed), so finished compilations hand theirs on.
class MachinePool {
 public:
  std::unique_ptr<llvm::TargetMachine> take(const std::string& cpu, std::string& error) {
    {
      std::lock_guard lock(mutex_);
      for (size_t i = free_.size(); i-- > 0;) {
        if (free_[i]->getTargetCPU() != cpu) continue;
        auto machine = std::move(free_[i]);
        free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
        return machine;
      }
    }
    const llvm::Target* target = llvm::TargetRegistry::lookupTarget(kTriple, error);
    if (target == nullptr) return nullptr;
    llvm::TargetOptions options;
    options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
    return std::unique_ptr<llvm::TargetMachine>(
        target->createTargetMachine(kTriple, cpu, "", options, llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                    llvm::CodeGenOptLevel::Default, /*JIT=*/true));
  }
  void give_back(std::unique_ptr<llvm::TargetMachine> machine) {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(machine));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<llvm::TargetMachine>> free_;
};

MachinePool& machines() {
  static auto* pool = new MachinePool;   // never destroyed: threads may outlive static destructors
  return *pool;
}

const std::string& host_cpu() {
  static const auto* cpu = new std::string(llvm::sys::getHostCPUName().str());
  return *cpu;
}

std::unique_ptr<llvm::Module> run_front_end(const char* text, const std::string& cpu, llvm::LLVMContext& context,
                                            std::string& error) {
  std::vector<const char*> arguments = {"-triple", kTriple, "-target-cpu", cpu.c_str(), "-main-file-name", kFile};
  arguments.insert(arguments.end(), std::begin(kFrontArguments), std::end(kFrontArguments));
  arguments.push_back(kFile);

  auto files = llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>();
  files->addFile(kFile, 0, llvm::MemoryBuffer::getMemBuffer(text, kFile));
  llvm::raw_string_ostream messages(error);
  auto options = llvm::makeIntrusiveRefCnt<clang::DiagnosticOptions>();
  clang::TextDiagnosticPrinter printer(messages, options.get());
  auto diagnostics = llvm::makeIntrusiveRefCnt<clang::DiagnosticsEngine>(
      llvm::makeIntrusiveRefCnt<clang::DiagnosticIDs>(), options, &printer, /*ShouldOwnClient=*/false);
  auto invocation = std::make_shared<clang::CompilerInvocation>();
  if (!clang::CompilerInvocation::CreateFromArgs(*invocation, arguments, *diagnostics)) return nullptr;
  clang::CompilerInstance instance;
  instance.setInvocation(std::move(invocation));
  instance.setDiagnostics(diagnostics.get());
  instance.createFileManager(files);
  clang::EmitLLVMOnlyAction action(&context);
  if (!instance.ExecuteAction(action)) return nullptr;
  return action.takeModule();
}

bool optimize(llvm::Module& module, llvm::TargetMachine& machine, std::string& error) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  functions.registerPass(
      [&] { return llvm::TargetLibraryAnalysis(llvm::TargetLibraryInfoImpl(llvm::Triple(module.getTargetTriple()))); });
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::ModulePassManager passes;
  if (auto failure = builder.parsePassPipeline(passes, kPasses)) {
    error = llvm::toString(std::move(failure));
    return false;
  }
  passes.run(module, modules);
  return true;
}

bool generate(llvm::Module& module, llvm::TargetMachine& machine, llvm::SmallVector<char, 0>& bytes) {
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile, /*DisableVerify=*/true))
    return false;
  passes.run(module);
  return true;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int braze_clang_init() {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  LLVMInitializeX86AsmParser();
  const char* options[] = {"braze", "-disable-lsr"};
  llvm::cl::ParseCommandLineOptions(2, options);
  return braze::jit::init_linker() ? 0 : 1;
}

__attribute__((visibility("default"))) const char* braze_clang_version() { return LLVM_VERSION_STRING; }

__attribute__((visibility("default"))) const char* braze_clang_flags() {
  static const auto* flags = [] {
    auto* text = new std::string;
    for (const char* argument : kFrontArguments) *text += std::string(argument) + " ";
    *text += kPasses;
    return text;
  }();
  return flags->c_str();
}

__attribute__((visibility("default"))) const char* braze_clang_host_cpu() { return host_cpu().c_str(); }

__attribute__((visibility("default"))) BrazeClangObject* braze_clang_compile(const char* text, const char* cpu_or_empty,
                                                                             BrazeClangTimes* times) {
  auto* object = new BrazeClangObject;
  const std::string_view wanted = cpu_or_empty;
  const std::string cpu = wanted.empty() ? "x86-64" : wanted == "native" ? host_cpu() : std::string(wanted);
  const double start = now_ms();
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module = run_front_end(text, cpu, context, object->error);
  const double parsed = now_ms();
  if (module == nullptr) {
    if (object->error.empty()) object->error = "clang's front end failed";
    return object;
  }
  object->error.clear();   // warnings
  auto machine = machines().take(cpu, object->error);
  if (machine == nullptr) return object;
  // The machine's own defaults apply; otherwise the back end parses the feature string again for each function.
  for (llvm::Function& function : *module)
    for (const char* attribute : {"target-features", "target-cpu", "tune-cpu"}) function.removeFnAttr(attribute);
  module->setDataLayout(machine->createDataLayout());
  double optimized = parsed;
  if (optimize(*module, *machine, object->error)) {
    optimized = now_ms();
    if (!generate(*module, *machine, object->bytes)) object->error = "no object emitter for this target";
  }
  module.reset();
  machines().give_back(std::move(machine));
  if (times != nullptr) *times = {parsed - start, optimized - parsed, now_ms() - optimized};
  return object;
}

__attribute__((visibility("default"))) const char* braze_clang_error(const BrazeClangObject* object) {
  return object->error.c_str();
}

__attribute__((visibility("default"))) const char* braze_clang_bytes(const BrazeClangObject* object, size_t* size) {
  *size = object->bytes.size();
  return object->bytes.data();
}

__attribute__((visibility("default"))) void braze_clang_free(BrazeClangObject* object) { delete object; }

}  // extern "C"
