// Arena: objects that live and die together (a graph, a loop program). Pointers into it stay valid until it goes.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace braze {

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    for (auto it = destructors_.rbegin(); it != destructors_.rend(); ++it) it->run(it->object);
  }

  template <class T, class... Args>
  T* make(Args&&... args) {
    T* object = new (allocate(sizeof(T), alignof(T))) T(std::forward<Args>(args)...);
    if constexpr (!std::is_trivially_destructible_v<T>)
      destructors_.push_back({object, [](void* o) { static_cast<T*>(o)->~T(); }});
    return object;
  }

 private:
  struct Destructor {
    void* object;
    void (*run)(void*);
  };

  void* allocate(size_t size, size_t align) {
    size_t at = (used_ + align - 1) & ~(align - 1);
    if (blocks_.empty() || at + size > capacity_) {
      capacity_ = size > kBlock ? size : kBlock;
      blocks_.push_back(std::make_unique<std::byte[]>(capacity_));
      at = 0;
    }
    used_ = at + size;
    return blocks_.back().get() + at;
  }

  static constexpr size_t kBlock = 64 * 1024;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::vector<Destructor> destructors_;
  size_t used_ = 0;
  size_t capacity_ = 0;
};

}  // namespace braze
