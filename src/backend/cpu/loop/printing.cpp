// The bytecode of a loop program as text.
#include <fmt/format.h>

#include "backend/cpu/loop/code.hpp"
#include "tensor/element.hpp"

namespace weft::cpu {

std::string LoopProgram::to_string() const {
  const auto place = [&](int index) {
    const Value& value = code_->values[static_cast<std::size_t>(index)];
    switch (value.place) {
      case Place::constant: {
        const char* at = code_->constants.data() + value.offset;
        if (value.type == DType::f32) return fmt::format("{}", static_cast<float>(read_element(value.type, at)));
        if (is_float(value.type)) return fmt::format("{}", read_element(value.type, at));
        return element_text(value.type, at, 0) + (value.type == DType::u32 ? "u" : "");
      }
      case Place::memory: return value.operand < 0 ? std::string("product") : fmt::format("in{}", value.operand);
      case Place::output: return fmt::format("out{}", value.operand);
      case Place::kept:
      case Place::tile: return fmt::format("{}{}", value.outer ? "o" : value.place == Place::kept ? "k" : "r", index);
    }
    return std::string();
  };
  std::string text = fmt::format("loop {} {}: {} x {}, tile {} x {}", code_->name, code_->columns ? "columns" : "rows",
                                 code_->outer, code_->inner, code_->block, code_->chunk);
  if (code_->splits > 1) text += fmt::format(", {} parts", code_->splits);
  text += '\n';
  const auto print = [&](const auto& self, const std::vector<LoopInstruction>& list,
                         const std::string& indent) -> void {
    for (const LoopInstruction& in : list) {
      if (in.action == Action::chain) {
        text += indent + "chain\n";
        self(self, code_->chains[static_cast<std::size_t>(in.chain)].instructions, indent + "| ");
        continue;
      }
      std::string line = indent;
      if (in.action == Action::reduce)
        line += fmt::format("{} = ", place(code_->reductions[static_cast<std::size_t>(in.out)].value));
      else if (in.action == Action::store)
        line += fmt::format("out{} = ", in.operand);
      else
        line += fmt::format("{} = ", place(in.out));
      line += code_->names[static_cast<std::size_t>(in.name)];
      if (in.action == Action::fetch || in.action == Action::gather)
        line += in.operand < 0 ? " product" : fmt::format(" in{}", in.operand);
      for (int i = 0; i < in.arg_count; ++i) line += fmt::format("{} {}", i == 0 ? "" : ",", place(in.args[i].value));
      text += line + '\n';
    }
  };
  for (std::size_t p = 0; p < code_->phases.size(); ++p) {
    if (code_->phases.size() > 1) text += fmt::format(" phase {}\n", p);
    print(print, code_->phases[p].outer, "  ");
    print(print, code_->phases[p].inner, "    ");
  }
  print(print, code_->last.inner, "  ");
  return text;
}

}  // namespace weft::cpu
