# complete_words.sh COMPLETION: what bash's completion offers for the beginnings of some commands, one per line
source "$1"
offers() {
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
  _cleave
  echo "[${COMPREPLY[*]}]"
}
offers cleave comp
offers cleave run --snap
offers cleave compile m.onnx --ze
offers cleave run m
echo end
