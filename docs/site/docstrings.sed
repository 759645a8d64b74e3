# "/// Errors  text" is a paragraph of its own with that title.
s@^( *///) (Formula|Shapes|Dtypes|Units|Gradient|Errors|Source|Example)  +(.*)$@\1 \\par \2\n\1 \3@
# Friends are not for users, and Doxygen 1.9 links to places for them that it does not make.
/^ *friend .*;$/d
