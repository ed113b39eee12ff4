"""Word lists: names, things, places, animals."""

from __future__ import annotations

GIRLS = (
    "Mia Lily Anna Sue Zoe Ella Ruby Nora Ivy Lucy Rosa Emma Jane Kate Molly Daisy Amy Eva Tina Sara "
    "Maya Nina Clara Holly Penny Grace Lola Hana Leila Freya Alma Greta June Olive Tara Wendy"
).split()
BOYS = (
    "Tom Ben Sam Max Leo Tim Jack Finn Noah Otto Luke Adam Dan Omar Hugo Theo Felix Oscar Jake Will "
    "Ravi Kai Peter Paul Nico Milo Toby Emil Ali Henry George Louis Ned Ivan Arlo Bruno"
).split()
ANIMAL_GIRLS = "Poppy Honey Dot Bella Pearl Fern Coco Misty Hazel Tilly Minnow Juniper Plum Bluebell".split()
ANIMAL_BOYS = "Pip Biscuit Rusty Pickle Bramble Chip Acorn Dusty Pepper Rufus Nibbles Pebble Sprout Barnaby".split()

ANIMALS = (
    "rabbit,fox,bear,mouse,duck,hedgehog,squirrel,owl,frog,turtle,cat,dog,pig,goat,lamb,pony,"
    "beaver,badger,otter,mole,penguin,panda,elephant,monkey"
).split(",")
PETS = (
    "little bird,small kitten,tiny puppy,baby rabbit,young duck,small squirrel,little hedgehog,"
    "baby fox,tiny mouse,little owl,small lamb,baby goat,young crow,little turtle,gray pigeon,small goose"
).split(",")

TOYS = (
    "ball,kite,doll,teddy bear,toy car,drum,puzzle,toy boat,toy train,robot,toy truck,jump rope,"
    "flute,top,toy plane,wagon,balloon,scooter,toy horse,whistle,hoop,toy duck,marble,puppet,toy castle"
).split(",")
THINGS = (
    "hat,scarf,bucket,blanket,cup,umbrella,bell,box,basket,lantern,ring,mitten,boot,backpack,crayon,"
    "paintbrush,key,button,shell,flag,pillow,necklace,crown,book,ribbon,spoon,bracelet,feather,coin,coat"
).split(",")
BREAKABLE = (
    "toy car,drum,toy boat,toy train,robot,toy truck,toy plane,wagon,toy horse,puppet,toy castle,"
    "cup,lantern,music box,kite,vase,bowl,clock,chair,lamp"
).split(",")
ADJECTIVES = (
    "red,blue,green,yellow,purple,pink,orange,white,black,brown,golden,silver,big,little,tiny,shiny,"
    "new,old,pretty,striped,spotted,small,bright,gray"
).split(",")

OUTDOORS = (
    "in|garden,at|park,at|beach,in|forest,on|farm,by|river,on|hill,at|playground,at|market,in|meadow,"
    "by|lake,in|field,by|pond,in|orchard,by|old bridge,in|yard,in|woods,in|valley,by|sea,"
    "at|old mill,in|village,by|stream,on|sand hill,at|train station,by|castle,by|big oak tree,at|fair"
).split(",")
ROOMS = "kitchen,bedroom,attic,living room,playroom,hall,barn,cellar".split(",")
SPOTS = (
    "under a bench,behind a big rock,next to a tree,in the tall grass,beside a log,behind a bush,"
    "under a pile of leaves,near a gate,by a stone wall,inside a hollow tree,under some flowers,behind a cart"
).split(",")

FOODS = (
    "apple pie,cake,carrot soup,banana bread,loaf of bread,berry pie,plum tart,honey cake,pizza,"
    "pumpkin pie,lemon cake,nut cake,orange cake,pot of soup,cherry pie,egg salad"
).split(",")
TREATS = "cookie,apple,muffin,pear,sandwich,plum,cupcake,banana,peach,bun,orange,pancake".split(",")
PLANTS = (
    "sunflower,bean plant,tomato plant,rose,pumpkin,apple tree,carrot,tulip,pea plant,berry bush,"
    "daisy,strawberry plant,lemon tree,pepper plant"
).split(",")
BUILDS = (
    "tower,tree house,castle,bridge,fort,bird house,raft,doll house,little boat,cart,stone wall,"
    "tunnel,hut,swing,rocket,den"
).split(",")
SKILLS = (
    "swim,whistle,skate,dance,sing,ride a bike,jump rope,climb a tree,draw a star,read a book,"
    "count to twenty,catch a ball,play the flute,do a cartwheel,row a boat,write a letter,tie a knot,juggle"
).split(",")
MATERIALS = "wood,stones,boxes,sticks,blocks,rope and wood,bricks,branches".split(",")
MAKERS = "an owl,a kitten,a cricket,a little mouse,a frog,a branch on the window,an old clock,a loose door,a puppy,the wind".split(",")
COLORS = "red,blue,green,yellow,purple,pink,white,black,brown,gray".split(",")
