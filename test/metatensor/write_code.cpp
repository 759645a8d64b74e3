// Writes the C++ of a layout to a file, for code_compiles.cpp.
#include <fstream>

#include "metatensor/code_layout.hpp"

int main(int, char** arguments) {
  std::ofstream(arguments[1]) << weft::typedefs::declarations(weft::typedefs::test_code::layout(),
                                                              weft::typedefs::Language::cpp, "Sample");
}
