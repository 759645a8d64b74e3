// weft serve
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>

#include "base/file.hpp"
#include "cli/commands.hpp"
#include "cli/language_model.hpp"
#include "cli/network.hpp"
#include "cli/output.hpp"
#include "cli/stop_on_interrupt.hpp"
#include "cli/text_encoder.hpp"
#include "weft/device.hpp"
#include "weft/encoder.hpp"
#include "weft/error.hpp"
#include "weft/llm_models.hpp"
#include "weft/speech.hpp"

namespace weft::cli {
namespace {

struct OpenAiRequest {
  ModelOptions model;
  std::filesystem::path transcriber, voice;  // folders of speech models
  std::filesystem::path encoder, reranker;   // of text encoders
  std::filesystem::path detector;            // a file; empty: all of a sound is heard
  std::string host = "127.0.0.1", alias, origin, encoder_precision = "f32";
  int port = 8080, sequences = 4;
  std::size_t queue = 64;
  int grace_seconds = 20;
  std::vector<std::string> api_keys;
  std::filesystem::path api_key_file, certificate, key, store;
  bool quiet = false;
};

constexpr std::uint64_t kKeyFileBytesMax = std::uint64_t{1} << 20;

// A key a line; empty lines and lines that begin with # are left out.
void add_keys(const std::filesystem::path& file, std::vector<std::string>& keys) {
  const std::string text = read_text_file(file, kKeyFileBytesMax);
  std::size_t before = keys.size();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    while (line.ends_with('\r') || line.ends_with(' ')) line.pop_back();
    if (std::any_of(line.begin(), line.end(), [](char c) { return c < ' ' || c == 127; }))
      throw FileError(fmt::format("{}: line {} is no key: a key has printable characters of ASCII only", file.string(),
                                  std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1));
    if (!line.empty() && line[0] != '#') keys.push_back(std::move(line));
    at = end + 1;
  }
  if (keys.size() == before) throw UsageError(fmt::format("--api-key-file {}: the file has no key", file.string()));
}

/// The name of a file or folder, without the suffix of GGUF files.
std::string name_of_model(const std::filesystem::path& given) {
  std::string name = given.empty() ? std::string() : llm::model_name(given);
  if (name.starts_with("hf:")) name.erase(0, 3);
  return name;
}

int serve_model(OpenAiRequest request) {
  for (std::filesystem::path* path :
       {&request.model.path, &request.transcriber, &request.voice, &request.encoder, &request.reranker})
    if (!path->empty()) *path = model_path(*path);
  for (const std::string& key : request.api_keys)
    if (key.empty()) throw UsageError("--api-key is empty; give a key, or leave the option out");
  if (!request.api_key_file.empty()) add_keys(request.api_key_file, request.api_keys);
  if (request.certificate.empty() != request.key.empty()) throw UsageError("--certificate and --key belong together");
  remote::OpenAiOptions options{.http = {.host = request.host,
                                         .port = static_cast<std::uint16_t>(request.port),
                                         .version = WEFT_VERSION,
                                         .certificate = request.certificate,
                                         .key = request.key},
                                .model_name = request.alias,
                                .api_keys = request.api_keys,
                                .allowed_origin = request.origin,
                                .waiting_max = request.queue,
                                .response_folder = request.store};
  // A speech model or a text encoder alone is one too.
  const bool is_encoder = encoder::is_encoder(request.model.path),
             is_reranker = is_encoder && encoder::classifies_texts(request.model.path);
  for (const auto& [is_one, path, option] :
       {std::tuple(is_encoder && !is_reranker, &request.encoder, "--encoder"),
        std::tuple(is_reranker, &request.reranker, "--reranker"),
        std::tuple(speech::is_transcriber(request.model.path), &request.transcriber, "--transcriber"),
        std::tuple(speech::is_voice(request.model.path), &request.voice, "--voice")})
    if (is_one) {
      if (!path->empty())
        throw UsageError(fmt::format("{}: the model is such a model itself; give one of them", option));
      std::swap(request.model.path, *path);
    }
  options.has_model = !request.model.path.empty();
  options.has_transcriber = !request.transcriber.empty();
  options.has_voice = !request.voice.empty();
  options.has_encoder = !request.encoder.empty();
  options.has_reranker = !request.reranker.empty();
  if (!options.has_model && !options.has_transcriber && !options.has_voice && !options.has_encoder &&
      !options.has_reranker)
    throw UsageError(
        "the name of the model is empty; give the file or folder of a model, or its name as hf:OWNER/NAME");
  if (!request.detector.empty() && !options.has_transcriber)
    throw UsageError("--detector finds the speech for a speech model; give one with --transcriber, or leave it out");
  if (!options.has_model && !request.alias.empty()) throw UsageError("--alias names a language model; leave it out");
  if (options.model_name.empty()) options.model_name = name_of_model(request.model.path);
  if (!request.quiet) options.http.log = [](std::string_view line) { put_message(line); };
  const bool is_local = request.host == "127.0.0.1" || request.host == "localhost" || request.host == "::1";
  if (!is_local && request.api_keys.empty())
    put_message("warning: everybody who reaches this machine can use the model; --api-key asks for a key");
  StopOnInterrupt interrupt;
  allow_more_descriptors();
  const std::unique_ptr<remote::OpenAiService> server = network().serve_openai(options);
  const std::string shown = request.host.find(':') == std::string::npos ? request.host : "[" + request.host + "]";
  const std::string url =
      fmt::format("{}://{}:{}/v1", request.certificate.empty() ? "http" : "https", shown, server->name());
  const auto tell_loading = [](const std::filesystem::path& path) {
    put_message(fmt::format("loading {}; requests are answered with 503 until then", path.string()));
  };
  std::vector<std::string> names;
  if (options.has_model) {
    tell_loading(request.model.path);
    server->set_model(load_language_model(request.model, request.sequences));
    names.push_back(options.model_name);
  }
  use_threads(request.model);
  const speech::LoadOptions load{.device = first_device(request.model.device)};
  if (options.has_voice) {
    tell_loading(request.voice);
    server->set_voice(speech::load_voice(request.voice, load), names.emplace_back(name_of_model(request.voice)));
  }
  for (const auto& [path, is_one] :
       {std::pair(&request.encoder, options.has_encoder), std::pair(&request.reranker, options.has_reranker)}) {
    if (!is_one) continue;
    tell_loading(*path);
    encoder::Model model = load_text_encoder(*path, load.device, request.encoder_precision);
    const std::string& name = names.emplace_back(name_of_model(*path));
    if (path == &request.encoder) {
      server->set_encoder(std::move(model), name);
    } else {
      if (model.task() != encoder::Task::classify)
        throw UsageError(
            "--reranker: the model has no head of classes; give a cross-encoder, or name it with --encoder");
      server->set_reranker(std::move(model), name);
    }
  }
  if (options.has_transcriber) {
    tell_loading(request.transcriber);
    std::optional<speech::Detector> detector;
    if (!request.detector.empty()) detector = speech::load_detector(request.detector);
    server->set_transcriber(speech::load_transcriber(request.transcriber, load), std::move(detector),
                            names.emplace_back(name_of_model(request.transcriber)));
  }
  put_message(fmt::format("serving {} on {}", fmt::join(names, " and "), url));
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  changed.wait(lock, interrupt.token(), [] { return false; });
  put_message("stopping; requests under way may end");
  server->drain(std::chrono::seconds(request.grace_seconds));
  return kOk;
}

}  // namespace

void set_up_serve(CLI::App& app, Action& action) {
  auto request = std::make_shared<OpenAiRequest>();
  OpenAiRequest& r = *request;
  app.footer("docs/serving.md describes routes, structured output, tools and limits.");
  add_model_options(app, r.model);
  add_image_options(app, r.model);
  app.add_option(
      "--transcriber", r.transcriber,
      "folder of a Whisper or another speech model for /v1/audio/transcriptions; it may also be the model itself");
  app.add_option("--detector", r.detector,
                 "Silero's detector of speech (.onnx) for --transcriber; only what it finds is heard");
  app.add_option("--voice", r.voice, "folder of a VITS voice for /v1/audio/speech; it may also be the model itself");
  app.add_option("--encoder", r.encoder,
                 "folder of a text encoder for /v1/embeddings; it may also be the model itself");
  app.add_option("--reranker", r.reranker, "folder of a cross-encoder for /v1/rerank; it may also be the model itself");
  add_encoder_precision(app, r.encoder_precision);
  app.add_option("--host", r.host, "IP address to listen on; 0.0.0.0: all of this machine")->capture_default_str();
  app.add_option("--port", r.port, "port to listen on; 0: any that is free")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  app.add_option("--alias", r.alias, "name of the model for clients; otherwise that of its file");
  app.add_option("--api-key", r.api_keys, "a key that clients must send; may be given several times")
      ->allow_extra_args(false);
  app.add_option("--api-key-file", r.api_key_file, "a file with a key on each line");
  app.add_option("--sequences", r.sequences, "number of texts that are written at once; each has --context positions")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_option("--queue", r.queue, "number of requests that may wait; more are refused with 429")
      ->capture_default_str();
  app.add_option("--grace", r.grace_seconds, "seconds that requests under way get to end after Ctrl-C or SIGTERM")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--allow-origin", r.origin,
                 "a site whose pages may call from a browser, such as https://example.org; * for all");
  app.add_option("--store", r.store,
                 "folder that keeps the latest responses of /v1/responses, so that they are known after a restart");
  app.add_option("--certificate", r.certificate, "PEM file: use TLS with this certificate, and --key");
  app.add_option("--key", r.key, "PEM file: the key of --certificate");
  app.add_option("--chat-template", r.model.chat_template, "a template in Jinja, in place of the model's own");
  app.add_flag("--quiet", r.quiet, "print no line for each request");
  app.callback([&action, request] { action = [request] { return serve_model(*request); }; });
}

}  // namespace weft::cli
