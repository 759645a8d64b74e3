// weft describe
#include <memory>

#include "cli/commands.hpp"
#include "cli/language_model.hpp"
#include "cli/output.hpp"
#include "cli/stop_on_interrupt.hpp"
#include "weft/error.hpp"
#include "weft/image.hpp"

namespace weft::cli {
namespace {

struct DescribeRequest {
  ModelOptions model;
  DrawOptions draw;
  std::filesystem::path image;
  std::vector<std::filesystem::path> more;
  std::string prompt = "Describe the image.";
  bool stats = false;
};

int describe(const DescribeRequest& request) {
  require_utf8_text(request.prompt, "the prompt");
  // Images are read first: that is quick, and what is wrong with them is told at once.
  llm::Message message{"user", ""};
  message.parts.emplace_back(image::read(request.image));
  for (const std::filesystem::path& image : request.more) message.parts.emplace_back(image::read(image));
  if (!request.prompt.empty()) message.parts.emplace_back(request.prompt);
  const llm::Model model = load_language_model(request.model);
  StopOnInterrupt stop;
  llm::GenerateOptions options = generate_options(request.draw);
  options.cancel = stop.token();
  llm::Generation generation = model.chat({message}, options);
  for (const std::string_view piece : generation)
    if (!put_foreign(piece)) stop.request_stop();
  put_text("\n");
  if (request.stats) put_message(speed_text(generation.result()));
  return stop.signal() != 0 ? kInterrupted : kOk;
}

}  // namespace

void set_up_describe(CLI::App& app, Action& action) {
  auto request = std::make_shared<DescribeRequest>();
  DescribeRequest& r = *request;
  r.draw.generate.max_tokens = 256;
  r.draw.generate.sampling.temperature = 0;
  app.footer("docs/vision.md lists the models.");
  add_model_options(app, r.model,
                    "folder of a model that sees: Qwen-VL, Gemma 3, SmolVLM and others; or its GGUF file");
  add_image_options(app, r.model);
  app.add_option("image", r.image, "PNG or JPEG file")->required();
  app.add_option("prompt", r.prompt, "what to say about it")->capture_default_str();
  app.add_option("--image", r.more, "a further image; may be given several times")->allow_extra_args(false);
  add_draw_options(app, r.draw);
  app.add_option("--chat-template", r.model.chat_template, "a template in Jinja, in place of the model's own");
  app.add_flag("--stats", r.stats, "tell the speed at the end");
  app.callback([&action, request] { action = [request] { return describe(*request); }; });
}

}  // namespace weft::cli
