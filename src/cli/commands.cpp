#include "cli/commands.hpp"

namespace weft::cli {

std::span<const Command> commands() {
  static constexpr Command kCommands[] = {
      {"train", "Models", "train a model: weft train text --data FILE --out FOLDER", set_up_train},
      {"generate", "Models", "let a trained model write", set_up_generate},
      {"devices", "Machine", "list the devices of this machine", set_up_devices},
  };
  return kCommands;
}

}  // namespace weft::cli
