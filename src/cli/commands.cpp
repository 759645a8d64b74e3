#include "cli/commands.hpp"

namespace weft::cli {

std::span<const Command> commands() {
  static constexpr Command kCommands[] = {
      {"train", "Models", "train a model: weft train text --data FILE --out FOLDER", set_up_train},
      {"tune", "Models", "fine-tune a language model: weft tune MODEL --data FILE --out FOLDER", set_up_tune},
      {"generate", "Models", "write text with a trained model", set_up_generate},
      {"chat", "Models", "talk with a language model", set_up_chat},
      {"describe", "Models", "say what is in an image, by a language model that sees", set_up_describe},
      {"embed", "Models", "compare texts, or images with texts, by their embeddings", set_up_embed},
      {"rerank", "Models", "order documents by how well they answer a query", set_up_rerank},
      {"answer", "Models", "find the part of a text that answers a question", set_up_answer},
      {"classify", "Models", "name the class of a text or of its words, or fill its masks", set_up_classify},
      {"serve", "Models", "serve a language model over HTTP, by the API of OpenAI", set_up_serve},
      {"transcribe", "Models", "write down speech: weft transcribe MODEL FILE.wav", set_up_transcribe},
      {"speak", "Models", "say a text: weft speak MODEL TEXT --out FILE.wav", set_up_speak},
      {"perplexity", "Models", "how well a language model predicts a text", set_up_perplexity},
      {"template", "Models", "print the text that a model reads: weft template render", set_up_template},
      {"tokenize", "Models", "cut a text into the tokens of a model, or put tokens together", set_up_tokenize},
      {"inspect", "Models", "show what a model file holds: GGUF, safetensors, metatensor, folders, checkpoints",
       set_up_inspect},
      {"models", "Models", "list models on this machine, and remove them: weft models list", set_up_models},
      {"quantize", "Models", "write a GGUF model in smaller types", set_up_quantize},
      {"convert", "Models", "turn GGUF, safetensors and metatensor files into each other", set_up_convert},
      {"memory", "Models", "texts that are found again by their meaning: add, search, recall", set_up_memory},
      {"grid", "Models", "describe, run, train and evolve volumetric networks", set_up_grid},
      {"eval", "Ops", "run a small program of ops on arrays from a file", set_up_eval},
      {"kernels", "Ops", "write the kernels of a program or model as files, for other programs", set_up_kernels},
      {"ops", "Ops", "list the ops: weft ops list", set_up_ops},
      {"operations", "Operations", "list, describe and call operations: weft operations list", set_up_operations},
      {"workflow", "Operations", "check and run workflows of operations: weft workflow run FILE", set_up_workflow},
      {"run", "Scripts", "run a script in its sandbox: JavaScript, TypeScript, JSX", set_up_run},
      {"repl", "Scripts", "a conversation in JavaScript", set_up_repl},
      {"script", "Scripts", "print declarations for TypeScript: weft script types", set_up_script},
      {"devices", "Machine", "list the devices of this machine", set_up_devices},
      {"doctor", "Machine", "test every op on a device against the CPU", set_up_doctor},
  };
  return kCommands;
}

}  // namespace weft::cli
