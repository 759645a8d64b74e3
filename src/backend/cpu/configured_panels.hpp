// Tiles stay configured for the rows of a panel while kernels go from panel to panel.
#pragma once

namespace weft::cpu {

/// What kernels on tiles need before and after their calls: a configuration for the rows of a panel, and its release. Both are
/// null for other kernels.
struct TileSetup {
  void (*configure)(int rows) = nullptr;
  void (*release)() = nullptr;
};

/// The configuration of this thread's tiles, changed only if the rows change, as that takes hundreds of cycles. While it lives, no
/// other kernels on tiles may run in the thread.
class ConfiguredPanels {
 public:
  explicit ConfiguredPanels(const TileSetup& setup) : setup_(setup) {}
  ConfiguredPanels(const ConfiguredPanels&) = delete;
  ~ConfiguredPanels() {
    if (rows_ > 0) setup_.release();
  }
  void set_rows(int rows) {
    if (setup_.configure == nullptr || rows == rows_) return;
    setup_.configure(rows);
    rows_ = rows;
  }

 private:
  const TileSetup& setup_;
  int rows_ = 0;
};

}  // namespace weft::cpu
