#include "backend/cpu/loop/chain.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

#include "backend/cpu/isa.hpp"
#include "backend/cpu/loop/chain_emitter.hpp"

namespace weft::cpu {
namespace {

std::atomic<bool>& enabled() {
  static std::atomic<bool> value = [] {
    const char* text = std::getenv("WEFT_CPU_JIT");
    return text == nullptr || std::string_view(text) != "0";
  }();
  return value;
}

}  // namespace

bool is_chain_type(DType type) { return type == DType::f32 || type == DType::bf16 || type == DType::f16; }

std::shared_ptr<const ChainCode::Code> ChainCode::assemble(const Chain& chain) {
  const std::vector<std::uint8_t> bytes = machine_code_of(chain);
  auto code = std::make_shared<Code>();
  const void* entry = bytes.empty() ? nullptr : Executable::make(bytes, &code->memory);
  if (entry == nullptr) return nullptr;
  code->function = reinterpret_cast<ChainFunction>(const_cast<void*>(entry));
  return code;
}

std::optional<ChainCode> ChainCode::make(const Chain& chain) {
  if (chain.varies.size() > kChainOperandsMax) return std::nullopt;
  // Code takes whole pages, so hundreds of equal chains of a deep model would take hundreds of pages.
  static std::mutex mutex;
  static std::map<Chain, std::weak_ptr<const Code>> known;
  static std::size_t most = 256;
  const std::lock_guard lock(mutex);
  std::weak_ptr<const Code>& place = known[chain];
  ChainCode made;
  made.code_ = place.lock();
  if (!made.code_) place = made.code_ = assemble(chain);
  if (made.code_) made.function_ = made.code_->function;
  if (known.size() > most) {
    std::erase_if(known, [](const auto& each) { return each.second.expired(); });
    most = std::max<std::size_t>(256, 2 * known.size());
  }
  return made.code_ ? std::optional(std::move(made)) : std::nullopt;
}

bool chains_enabled() { return isa() >= Isa::avx512 && enabled().load(std::memory_order_relaxed); }
void set_chains_enabled(bool value) { enabled().store(value, std::memory_order_relaxed); }

}  // namespace weft::cpu
