// Sources of modules.
#pragma once

#include <filesystem>
#include <string>

#include "script/engine.hpp"

namespace weft::script {

/// The compiler of TypeScript and JSX, in an engine of its own.
class SourceCompiler {
 public:
  explicit SourceCompiler(Engine& engine);
  ~SourceCompiler();
  SourceCompiler(const SourceCompiler&) = delete;
  /// Throws ScriptThrew with a SyntaxError of the script.
  std::string compile(const std::string& source, const std::string& name, bool types, bool elements);

 private:
  std::string message();
  Engine& engine_;
  JSRuntime* runtime_ = nullptr;
  JSContext* context_ = nullptr;
};

/// A module, ready to run by JS_EvalFunction; `import.meta.url` is that of its file. Throws ScriptThrew for a mistake in its syntax.
Local compiled_module(Engine& engine, const std::string& source, const std::string& name);
/// JavaScript for a source, by the suffix of its name.
std::string source_for(Engine& engine, std::string source, const std::string& name);
/// The same for a file below the folders of modules.
std::string module_source(Engine& engine, const std::filesystem::path& file);

}  // namespace weft::script
