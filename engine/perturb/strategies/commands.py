"""Words of a line that belong to a command, a flag, a path or a smiley, and say nothing when they move or go.

The tokeniser cuts signs from words ("dpkg -l" is "dpkg - l"), so a word beside a sign is a part of something that is typed as
it stands: a flag and its command ("dpkg - l"), an assignment ("lang = c"), a channel ("# ubuntu"), a smiley (": d", "o _ o").
A known command holds the words behind it too ("sudo apt-get install vim").
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import numpy as np

from parley.engine.perturb.strategies.texts import FlatContexts

SIGNS = frozenset("-_/\\|=<>+*&@#~$%^`")
"""Marks that are a part of what is typed, and none of a sentence."""
_COMMANDS = """
sudo gksudo gksu kdesudo apt apt-get apt-cache aptitude apt-key add-apt-repository dpkg dpkg-reconfigure update-grub ls cat
cd cp mv rm mkdir rmdir chmod chown chgrp grep egrep sed awk nano vim vi pico gedit modprobe rmmod lsmod lspci lsusb lshw
lsblk blkid ifconfig iwconfig iwlist dhclient umount fdisk dmesg uname killall pkill tar wget curl ssh scp rsync insmod
depmod mkfs fsck dd mknod ln echo whereis locate tail fglrxinfo glxinfo glxgears initctl systemctl update-rc.d xrandr startx
nohup pip npm git svn
"""
COMMANDS = frozenset(_COMMANDS.split())
"""Programs whose names are no words of a sentence."""
_OTHERS = """
alias ar as at bash bc bg bin boot bz2 cal cfdisk chroot clear cmp compiz conf cpu cron crontab cut date deb desktop dev
df diff dig du eject emacs env etc eth0 exec exit export ext3 ext4 fd fg file find fold free fs ftp gcc gconf gdm glx
gnome groups grub gz gzip halt head history host hosts htop id iface install ip irc iso jobs join kde kdesu kernel kill
last less lib link linux login logout look lsb_release make man md5sum mesg more mount nautilus nc nice nmap ntfs open opt
paste patch perl ping proc ps pwd python ram read reboot reset restart root sbin screen script sh shutdown sleep sort
source split start stat stop su swap sync synaptic tee telnet terminal test time tmp top touch tr tty type ubuntu unalias
uniq unmount unzip update upgrade uptime usb user usr vga vmstat vmware wait watch wc which who whoami wifi win windows
wine wireless write x xchat xorg yes zip
"""
NAMES = COMMANDS | frozenset(_OTHERS.split())
"""Names of programs, folders and files, those that are words as well: as words they have synonyms and slips, as names none."""
_EXTENSIONS = """
conf list jar deb rpm sh py txt gz bz2 tar zip iso so d ini cfg xml html log exe org com net h c img png jpg pdf doc ogv mp3
odt gpg sig md5 cpp java php js css avi flv wav rc
"""
EXTENSIONS = frozenset(_EXTENSIONS.split())
"""Ends of the names of files and hosts."""
_SIGN, _COMMAND, _COLON, _LETTER = 1, 2, 3, 4
_KINDS = {
    **dict.fromkeys("abcdefghijklmnopqrstuvwxyz0123456789", _LETTER),
    **dict.fromkeys(COMMANDS, _COMMAND),
    **dict.fromkeys(SIGNS, _SIGN),
    **dict.fromkeys((":", ";"), _COLON),
}
_TELLING = COMMANDS | SIGNS | {":", ";"}
"""Where none of these is, nothing is held."""
_NUM_BEHIND = 2
"""Words that a command holds behind it."""


def in_commands_of_utterance(words: Sequence[str]) -> list[bool]:
    """Return `in_commands` of one utterance; for a short one faster than numpy."""
    held = [False] * len(words)
    if "." in words:
        for position in range(1, len(words) - 1):
            if words[position] == "." and words[position + 1] in EXTENSIONS:
                held[position - 1 : position + 2] = True, True, True
    if _TELLING.isdisjoint(words):
        return held
    behind, before = 0, 0
    for position, kind in enumerate(map(_KINDS.get, words, repeat(0))):
        held[position] = held[position] or behind > 0 or kind == _COMMAND or (kind == _LETTER and before == _COLON)
        if kind == _SIGN:
            for beside in range(max(position - 1, 0), min(position + 2, len(words))):
                held[beside] = True
        behind, before = _NUM_BEHIND if kind == _COMMAND else behind - 1, kind
    return held


def _in_file_names(flat: FlatContexts) -> np.ndarray:
    """Mark the words of a file's name, which the tokeniser cuts at its full stop (N,) bool."""
    if "." not in flat.words:
        return np.zeros(len(flat.words), dtype=bool)
    is_dot, is_end = flat.are_in({"."}), flat.are_in(EXTENSIONS)
    is_in_name = np.zeros(len(is_dot), dtype=bool)
    begins = np.zeros(len(is_dot) + 1, dtype=bool)
    begins[flat.edges] = True
    is_within = is_dot[1:-1] & is_end[2:] & ~begins[1:-2] & ~begins[2:-1] if len(is_in_name) > 2 else is_dot[:0]
    ends = np.flatnonzero(is_within)
    is_in_name[ends] = is_in_name[ends + 1] = is_in_name[ends + 2] = True
    return is_in_name


def in_commands(flat: FlatContexts) -> np.ndarray:
    """Mark the words of a command, flag, path, file name or smiley, signs included (N,) bool."""
    if flat.is_short:
        return np.array(in_commands_of_utterance(flat.words), dtype=bool)
    kinds = np.frombuffer(bytes(map(_KINDS.get, flat.words, repeat(0))), dtype=np.uint8)
    begins = np.zeros(len(kinds) + 1, dtype=bool)
    begins[flat.edges] = True
    joined = ~begins[1:-1]
    is_sign, is_command = kinds == _SIGN, kinds == _COMMAND
    held = is_sign | is_command
    held[1:] |= is_sign[:-1] & joined
    held[:-1] |= is_sign[1:] & joined
    held[1:] |= (kinds[:-1] == _COLON) & (kinds[1:] == _LETTER) & joined
    reached = is_command
    for _ in range(_NUM_BEHIND):
        reached = np.concatenate([[False], reached[:-1] & joined]) if len(kinds) else reached
        held |= reached
    return held | _in_file_names(flat)
