// Figures that a benchmark keeps: a line of JSON each, from which bench/figures.py makes the tables and charts of the docs.
#pragma once

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>

namespace weft::figures {

/// What was measured, on Weft and on a peer that did the same work in the same run. The unit says which way is better:
/// rates end in "/s", and of all else (us, ms, s, MB) less is better.
struct Figure {
  std::string group;  ///< heading of its table: "f32 matrix products"
  std::string work;   ///< "square nn, 1024 x 1024 x 1024"
  std::string unit;   ///< "GFLOP/s"
  double weft = 0;    ///< best of the run
  std::string peer;   ///< name and version; "" without a peer
  double of_peer = 0;
  std::string machine;  ///< "" for this processor
};

/// The name of this processor and how many threads it runs.
inline std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string line, name = "unknown processor";
  while (std::getline(file, line))
    if (line.starts_with("model name")) {
      name = line.substr(line.find(':') + 2);
      break;
    }
  return name + ", " + std::to_string(std::thread::hardware_concurrency()) + " threads";
}

/// Appends the figure to the file that WEFT_BENCH_RECORD names, with the date and the revision that WEFT_BENCH_REVISION
/// names. Does nothing without WEFT_BENCH_RECORD.
inline void keep(const Figure& figure) {
  const char* path = std::getenv("WEFT_BENCH_RECORD");
  if (!path) return;
  const char* revision = std::getenv("WEFT_BENCH_REVISION");
  char date[11];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
  nlohmann::ordered_json line{
      {"group", figure.group}, {"work", figure.work}, {"unit", figure.unit}, {"weft", figure.weft}};
  if (!figure.peer.empty()) line["peer"] = figure.peer, line["of_peer"] = figure.of_peer;
  line["machine"] = figure.machine.empty() ? processor() : figure.machine;
  line["date"] = date;
  line["revision"] = revision ? revision : "unknown";
  std::ofstream(path, std::ios::app) << line.dump() << "\n";
}

}  // namespace weft::figures
