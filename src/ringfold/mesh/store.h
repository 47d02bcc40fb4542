// c10d counts its stores inside the object; our headers hold them as std::shared_ptr so that they need no c10d header.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ringfold {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

inline std::shared_ptr<c10d::Store> share_store(StorePtr store) {
  c10d::Store* raw = store.get();
  return {raw, [kept = std::move(store)](c10d::Store*) mutable { kept.reset(); }};
}

inline StorePtr counted_store(const std::shared_ptr<c10d::Store>& store) {
  return StorePtr::unsafe_reclaim_from_nonowning(store.get());
}

}  // namespace ringfold
