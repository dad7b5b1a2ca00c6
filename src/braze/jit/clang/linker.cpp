// Object bytes to callable code, by JITLink. Each object gets a JITDylib of its own, so that it can be unloaded.
#include "braze/jit/clang/linker.h"

#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/ExecutorProcessControl.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/ExecutionEngine/Orc/Shared/ExecutorAddress.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "braze/jit/clang/clang_api.h"

namespace orc = llvm::orc;

struct BrazeClangCode {
  orc::JITDylib* library;
};

namespace {

struct Linker {
  std::unique_ptr<orc::ExecutionSession> session;
  std::unique_ptr<orc::ObjectLinkingLayer> layer;
  orc::JITDylib* symbols = nullptr;   // what braze_clang_define added
  std::atomic<int> count{0};
};
Linker* linker = nullptr;   // never destroyed: kernels may run until the process ends

char* copy_text(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

}  // namespace

namespace braze::jit {

bool init_linker() {
  auto control = orc::SelfExecutorProcessControl::Create();
  if (!control) {
    llvm::consumeError(control.takeError());
    return false;
  }
  auto* made = new Linker;
  made->session = std::make_unique<orc::ExecutionSession>(std::move(*control));
  made->session->setErrorReporter([](llvm::Error error) { llvm::consumeError(std::move(error)); });
  made->layer = std::make_unique<orc::ObjectLinkingLayer>(*made->session,
                                                          made->session->getExecutorProcessControl().getMemMgr());
  made->symbols = &made->session->createBareJITDylib("symbols");
  linker = made;
  return true;
}

}  // namespace braze::jit

extern "C" {

__attribute__((visibility("default"))) int braze_clang_define(const char* name, void* address) {
  orc::SymbolMap map;
  map[linker->session->intern(name)] = {orc::ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported};
  auto error = linker->symbols->define(orc::absoluteSymbols(std::move(map)));
  if (!error) return 0;
  llvm::consumeError(std::move(error));
  return 1;
}

__attribute__((visibility("default"))) BrazeClangCode* braze_clang_load(const char* bytes, size_t size, char** error) {
  *error = nullptr;
  auto& library = linker->session->createBareJITDylib("kernels" + std::to_string(linker->count++));
  library.addToLinkOrder(*linker->symbols);
  auto copy = llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(bytes, size), "kernels.o");
  if (auto failure = linker->layer->add(library, std::move(copy))) {
    *error = copy_text(llvm::toString(std::move(failure)));
    llvm::consumeError(linker->session->removeJITDylib(library));
    return nullptr;
  }
  return new BrazeClangCode{&library};
}

__attribute__((visibility("default"))) void* braze_clang_symbol(BrazeClangCode* code, const char* name) {
  auto symbol = linker->session->lookup({code->library}, linker->session->intern(name));
  if (!symbol) {
    llvm::consumeError(symbol.takeError());
    return nullptr;
  }
  return symbol->getAddress().toPtr<void*>();
}

__attribute__((visibility("default"))) void braze_clang_unload(BrazeClangCode* code) {
  llvm::consumeError(linker->session->removeJITDylib(*code->library));
  delete code;
}

__attribute__((visibility("default"))) void braze_clang_free_text(char* text) { std::free(text); }

}  // extern "C"
